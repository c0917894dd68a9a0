"""Money: budgets with hard caps, reservations before spending, settlement after."""
