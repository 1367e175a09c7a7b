"""The scorer in production: rerank APIs people already call, with the decision as a first-class output.

settings       what a server allows                  service        pools in, scores and decisions out; no HTTP
batcher        windows scored together, in turns     truncation     what is read of a long document
shapes         our requests and answers as JSON      rerank_shapes  those of Jina, Cohere, TEI and vLLM
routes         each shape to a pool, its answer      monitor        live stability in idle time
operations     models, health, metrics, explorer     middleware     host, token, size, id, log line
app            all of it as one application          server         uvicorn around it, its connections and its log

One rule above all: candidates of different requests never share a prompt. Windows of many requests share a forward pass
as separate sequences, which moves no score by more than the noise floor (tests/serve/test_batcher.py).
"""
