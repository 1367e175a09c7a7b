"""The scorer in production: rerank APIs people already call, with the decision as a first-class output.

settings     what a server allows                 decisions      decisions and how settled they are, on arrays
batcher      passes that requests share           batched        a request's view of a backend: windows to the batcher
shared_base  several models on one base           service        pools in, scores and decisions out; no HTTP
truncation   what is read of a long document      monitor        live stability in idle time
schemas      requests and answers as JSON         requests       what every scoring route needs: `RequestRunner`
routes       each shape to a pool                 answers        arrays to the rows of an answer
operations   models, health, readiness, metrics   metrics        what Prometheus reads
explorer     the page and its examples            logs           JSON lines, repeated warnings counted
middleware   host, token, size, id, log line      specification  openapi.json with this server's limits
app          all of it as one application         connections    deadlines and a bound on open connections
server       uvicorn around it                    variants       rules between two fields, in the schema of a request
foreign_fields  fields of other APIs that are refused: the answer would not be what was asked for

One rule above all: candidates of different requests never share a prompt. Windows of many requests share a forward pass
as separate sequences, which moves no score by more than the noise floor (tests/serve/test_batcher.py).
"""
