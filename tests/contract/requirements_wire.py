"""Rows of the evaluation contract's list of tests and of the MCP guide's behaviours."""

ROWS = """
G-HTTP-16.1 envloop-http.md#16.1 open #5
  The public client's smoke run passes against a fresh server, also below /api.
G-HTTP-16.2 envloop-http.md#16.2 open #5
  The client's login passes with a lost answer, wrong codes, denial, expiry and cancel after approval.
G-HTTP-16.3 envloop-http.md#16.3 closed
  Every error has a top-level upper-case code, a trailing slash is 404, and an answer is never compressed.
G-HTTP-16.4 envloop-http.md#16.4 open #5
  Each route's needed and shown fields stand in a real answer.
G-HTTP-16.5 envloop-http.md#16.5 closed
  50 equal submissions at once are one Job, changed arguments 409, and a kill before the answer loses nothing.
G-HTTP-16.6 envloop-http.md#16.6 open #5
  Each preset gets what its capabilities say on each route and tool, and another project's ids are not found.
G-HTTP-16.7 envloop-http.md#16.7 closed
  Every allowed move is made and every other refused; a stop against the last Trial has one winner.
G-HTTP-16.8 envloop-http.md#16.8 open #5
  The contract's vector of rewards gives its numbers through aggregate, result and compare.
G-HTTP-16.9 envloop-http.md#16.9 open #5
  Artifacts: hostile names, windows at every offset, images at their bounds, an allowance that never over-commits.
G-HTTP-16.10 envloop-http.md#16.10 closed
  Following the logs of a running Job shows every record once through a 503 and a restart.
G-HTTP-16.11 envloop-http.md#16.11 open #5
  All thirteen tools work through a real client, and a cap that is absent or out of range writes nothing.
G-HTTP-16.12 envloop-http.md#16.12 closed
  What lies outside the seeds answers as listed.
G-HTTP-16.13 envloop-http.md#16.13 closed
  Codes and reasons of the documentation and of the code are the same lists.

G-MCP-20.1 mcp.md#20.1 open later OAuth server
  A browser can read WWW-Authenticate on 401.
G-MCP-20.2 mcp.md#20.2 open later OAuth server
  Refusals 401, 403, 405, 413 and 429 carry CORS headers.
G-MCP-20.3 mcp.md#20.3 open later OAuth server
  A preflight request needs no key and allows the protocol's headers.
G-MCP-20.4 mcp.md#20.4 open later OAuth server
  A loopback redirect may use any port; other hosts match exactly.
G-MCP-20.5 mcp.md#20.5 open later OAuth server
  Client-id metadata documents and clients without a secret are advertised together.
G-MCP-20.6 mcp.md#20.6 open later OAuth server
  A registration with three addresses, one of an editor's own scheme, is accepted.
G-MCP-20.7 mcp.md#20.7 open later OAuth server
  Both forms of an assistant's callback are accepted, and a blank secret means a public client.
G-MCP-20.8 mcp.md#20.8 open later OAuth server
  The redirects of the known editors and assistants are accepted.
G-MCP-20.9 mcp.md#20.9 open later OAuth server
  A stale refresh token ends a login as the rules say, with 400 and never 500.
G-MCP-20.10 mcp.md#20.10 open later OAuth server
  offline_access is accepted and advertised.
G-MCP-20.11 mcp.md#20.11 open #5
  Content and structured content reach both real command lines.
G-MCP-20.12 mcp.md#20.12 closed
  Every schema passes the lint that no client's tool list breaks on.
G-MCP-20.13 mcp.md#20.13 closed
  Every tool name is short enough for the clients.
G-MCP-20.14 mcp.md#20.14 open #5
  A text answer stays below 40 KB with 10,000 Trials.
G-MCP-20.15 mcp.md#20.15 closed
  GET answers 405 with Allow, and 401 without a key.
G-MCP-20.16 mcp.md#20.16 open later OAuth server
  Everything below /.well-known answers JSON.
G-MCP-20.17 mcp.md#20.17 closed
  An Accept header without the event stream is served with JSON.
G-MCP-20.18 mcp.md#20.18 open #6
  No call lasts above 50 s, and its result can be read later.
G-MCP-20.19 mcp.md#20.19 open later
  doctor mcp shows each step of a connection.
G-MCP-20.20 mcp.md#20.20 open later OAuth server
  resource_metadata points to the right document, and resource is the exact URL.
G-MCP-20.21 mcp.md#20.21 not_testable a limit that is documented
  A client that insists on a session id is not served.
G-MCP-20.22 mcp.md#20.22 closed
  A request without headers gets 401 with a JSON body.
G-MCP-20.23 mcp.md#20.23 open later OAuth server
  Registration returns an address for itself, and unused clients expire.
G-MCP-20.24 mcp.md#20.24 open later OAuth server
  A client that registers twice can use both, and a code belongs to one.
G-MCP-20.25 mcp.md#20.25 open later OAuth server
  The metadata has every field, registration and S256 included.
G-MCP-20.26 mcp.md#20.26 open later OAuth server
  Access lives an hour, refresh 30 days.
G-MCP-20.27 mcp.md#20.27 open later OAuth server
  A client that was deleted gets 401 invalid_client.
G-MCP-20.28 mcp.md#20.28 open #6
  One store stands behind list, view and continue.
G-MCP-20.29 mcp.md#20.29 closed
  A batch is refused in both protocol eras with 400 and -32600, and nothing runs.
G-MCP-20.30 mcp.md#20.30 open #5 the first half holds; no tool of this version needs two capabilities
  A Read only key with wrong arguments gets ACCESS_DENIED; of two missing capabilities the first is named.
G-MCP-20.31 mcp.md#20.31 closed
  An unknown argument, NaN, 1e999 and money of 17 digits are refused.
G-MCP-20.32 mcp.md#20.32 open #5 personal keys
  A personal key with no, one, wrong and right headers gets what the rules say; listing tools works in all.
G-MCP-20.33 mcp.md#20.33 open #5
  Every error that a tool can reach has the same text and structured content, and no traceback or secret.
G-MCP-20.34 mcp.md#20.34 open #5
  A revoked key or lowered role counts from the next request.
G-MCP-20.35 mcp.md#20.35 open later OAuth server
  Error redirects carry the issuer, and a foreign resource is refused.
G-MCP-20.36 mcp.md#20.36 open later OAuth server
  A code used twice revokes its grant.
G-MCP-20.37 mcp.md#20.37 open later OAuth server
  20 refreshes of one token at once all succeed within the grace.
G-MCP-20.38 mcp.md#20.38 open later OAuth server
  The consent page resists other browsers, missing tokens, frames, expiry and double use.
G-MCP-20.39 mcp.md#20.39 open later OAuth server
  Client documents are fetched within bounds and never from private addresses.
G-MCP-20.40 mcp.md#20.40 open #6
  A client that closes while it waits harms no run and holds no connection.
G-MCP-20.41 mcp.md#20.41 open #6
  SIGTERM during 20 waits ends the process within 5 s.
G-MCP-20.42 mcp.md#20.42 closed
  A wrong host is 421, a wrong origin 403, an unknown version 400, each with a JSON body.
G-MCP-20.43 mcp.md#20.43 closed
  429 has Retry-After, and HTTP and MCP share the count.
G-MCP-20.44 mcp.md#20.44 open later OAuth server
  No token stands in logs or database; only hashes do.
G-MCP-20.45 mcp.md#20.45 open #5
  Every tool answers not found for another project's ids.
G-MCP-20.46 mcp.md#20.46 open #5
  Random arguments of the published schemas give no 5xx.
"""
