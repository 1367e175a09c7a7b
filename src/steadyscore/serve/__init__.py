"""The scorer in production: rerank APIs people already call, with the decision as a first-class output.

settings   what a server allows                decide    decisions and how settled they are, on arrays
batcher    passes that requests share          service   pools in, scores and decisions out; no HTTP
adapters   several models on one base          truncation  what is read of a long document
monitor    live stability in idle time         metrics   what Prometheus reads
shapes     requests and answers as JSON        desk      what every scoring route does
routes     each shape to a pool and back       gate      host, token, size, request id and log line
explorer   the page and its examples           logs      JSON lines that do not repeat themselves
app        all of it as one application        connections  deadlines and a bound on open connections
server     uvicorn around it

One rule above all: candidates of different requests never share a prompt. Windows of many requests share a forward pass
as separate sequences, which moves no score by more than the noise floor (tests/serve/test_batcher.py).
"""
