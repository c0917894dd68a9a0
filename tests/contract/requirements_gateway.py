"""Rows of the gateway guide: money, loss and secrets of metered model calls."""

ROWS = """
G-GW-GL1 gateway-and-ledger.md#15.GL1 closed
  Cached tokens that are part of the prompt are charged once, at the cache rate.
G-GW-GL2 gateway-and-ledger.md#15.GL2 closed
  Input that excludes the cache is not reduced again, and cache creation is charged once.
G-GW-GL3 gateway-and-ledger.md#15.GL3 closed
  Streamed and plain answers of the same usage cost the same.
G-GW-GL4 gateway-and-ledger.md#15.GL4 closed
  Usage that contradicts itself settles at the worst case.
G-GW-GL5 gateway-and-ledger.md#15.GL5 closed
  One formula prices everything; there is no second one to fall back on.
G-GW-GL6 gateway-and-ledger.md#15.GL6 closed
  A model without both rates is unknown, and refused under a cap.
G-GW-GL7 gateway-and-ledger.md#15.GL7 closed
  A pricing error at settlement charges the reservation.
G-GW-GL8 gateway-and-ledger.md#15.GL8 closed
  A streamed answer without usage is unmetered, never zero.
G-GW-GL9 gateway-and-ledger.md#15.GL9 closed
  Every dialect is metered, streamed and plain.
G-GW-GL10 gateway-and-ledger.md#15.GL10 closed
  Usage is read from incomplete and failed responses too.
G-GW-GL11 gateway-and-ledger.md#15.GL11 closed
  A client that disconnects is billed in full, and the drain is bounded.
G-GW-GL12 gateway-and-ledger.md#15.GL12 closed
  Outstanding reservations count: 50 calls at once never pass the cap.
G-GW-GL13 gateway-and-ledger.md#15.GL13 closed
  A reservation that cannot be written means no call.
G-GW-GL14 gateway-and-ledger.md#15.GL14 closed
  The worst case uses the dearer tier where the request can reach it.
G-GW-GL15 gateway-and-ledger.md#15.GL15 closed
  No counter stands beside the ledger, and a cap at any level holds.
G-GW-GL16 gateway-and-ledger.md#15.GL16 closed
  A large default output limit is clamped and does not block a small cap.
G-GW-GL17 gateway-and-ledger.md#15.GL17 closed
  Each retry is a row of its own.
G-GW-GL18 gateway-and-ledger.md#15.GL18 closed
  The agent library's own totals are not used for money.
G-GW-GL19 gateway-and-ledger.md#15.GL19 closed
  A refusal by the provider costs nothing and passes through.
G-GW-GL20 gateway-and-ledger.md#15.GL20 closed
  A call that only outstanding reservations block waits, then runs.
G-GW-GL21 gateway-and-ledger.md#15.GL21 closed
  A Trial's key is refused on another Trial's listener, and after the Trial's end.
G-GW-GL22 gateway-and-ledger.md#15.GL22 closed
  Duplicate keys and packed bodies are refused, or bounded by what they unpack to.
G-GW-GL23 gateway-and-ledger.md#15.GL23 closed
  Input that the body does not hold is refused by name; the known command lines' first requests pass.
G-GW-GL24 gateway-and-ledger.md#15.GL24 closed
  Images by URL and web search are refused where the network is none.
G-GW-GL25 gateway-and-ledger.md#15.GL25 closed
  A provider's redirect is not followed, and no real key shows anywhere.
G-GW-GL26 gateway-and-ledger.md#15.GL26 closed
  Each outcome of a call has a test that a script's fault drives.
G-GW-GL27 gateway-and-ledger.md#15.GL27 closed
  A kill at any point between reserve and settle keeps the cap and charges nothing twice.
G-GW-GL28 gateway-and-ledger.md#15.GL28 closed
  Reaper and late settlement: one wins, the money moves once, nothing deadlocks.
G-GW-GL29 gateway-and-ledger.md#15.GL29 closed
  A worker that slept past its lease sends nothing after the release.
G-GW-GL30 gateway-and-ledger.md#15.GL30 closed
  At the cap each Trial ends in the state that the rules name.
G-GW-GL31 gateway-and-ledger.md#15.GL31 closed
  A Trial's cap ends only its Trial; a project-day cap ends the Job and says so.
G-GW-GL32 gateway-and-ledger.md#15.GL32 closed
  An unpriced model under a cap starts no Trial; without a cap it runs and says that calls are unpriced.
G-GW-GL33 gateway-and-ledger.md#15.GL33 closed
  Sandbox leases are charged by the second, renewed, stop at the cap, and a crash charges one slice.
G-GW-GL34 gateway-and-ledger.md#15.GL34 closed
  An overrun is recorded, the budget stops, the constraint stays intact.
G-GW-GL35 gateway-and-ledger.md#15.GL35 closed
  A running Job keeps its prices.
G-GW-GL36 gateway-and-ledger.md#15.GL36 closed
  Free needs zero rates, and zero rates need the word free.
G-GW-GL37 gateway-and-ledger.md#15.GL37 closed
  SIMULATED shows wherever the scripted provider's results show, and no real day is charged.
G-GW-GL38 gateway-and-ledger.md#15.GL38 open #6
  A team definition reaches no provider but through the gateway.
G-GW-GL39 gateway-and-ledger.md#15.GL39 open #6
  After a crash finished model requests are not sent again.
G-GW-GL40 gateway-and-ledger.md#15.GL40 closed
  Each installed command line reacts to refusals as recorded.
G-GW-GL41 gateway-and-ledger.md#15.GL41 closed
  A cap below one call's least price ends the Job at the first call.
G-GW-GL42 gateway-and-ledger.md#15.GL42 closed
  A clamped or truncated call is counted and shown, and no neighbour's reservation clamps it.
"""
