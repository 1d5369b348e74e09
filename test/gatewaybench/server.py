"""A model server on the CPU for benchmarks: onnxruntime with one thread, one inference at a time.

It answers V1 instances and the Open Inference Protocol V2 (JSON) on loopback. The model is an
MLP with 16 inputs and three hidden layers of 2048 units, with weights from a fixed seed.

    python server.py PORT MODEL_FILE [WIDTH]
"""
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime as ort

INPUTS = 16


def write_model(path, width):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(36)
    nodes, weights, last, size = [], [], "x", INPUTS
    for i, out in enumerate([width, width, width, width, 4]):
        w = (rng.standard_normal((size, out)) / np.sqrt(size)).astype(np.float32)
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]))
        last, size = f"m{i}", out
        if out != 4:
            nodes.append(helper.make_node("Relu", [last], [f"r{i}"]))
            last = f"r{i}"
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes, "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", INPUTS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, path + ".part")
    os.replace(path + ".part", path)


port, path = int(sys.argv[1]), sys.argv[2]
if not os.path.exists(path):
    write_model(path, int(sys.argv[3]) if len(sys.argv) > 3 else 2048)
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
lock = threading.Lock()

METADATA = {"name": "mlp", "platform": "onnxruntime",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, INPUTS]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}]}


def run(rows):
    with lock:
        return session.run(["y"], {"x": rows})[0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # the head and the body of an answer leave in one segment
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def do_GET(self):
        if self.path == "/v2/models/mlp":
            return self.answer(200, METADATA)
        if self.path.startswith("/v2/health/"):
            return self.answer(200, {})
        return self.answer(404, {"error": "not found"})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "instances" in request:
            y = run(np.asarray(request["instances"], dtype=np.float32))
            return self.answer(200, {"predictions": y.tolist()})
        tensor = request["inputs"][0]
        y = run(np.asarray(tensor["data"], dtype=np.float32).reshape(tensor["shape"]))
        out = {"model_name": "mlp", "outputs": [
            {"name": "y", "datatype": "FP32", "shape": list(y.shape), "data": y.ravel().tolist()}]}
        if "id" in request:
            out["id"] = request["id"]
        return self.answer(200, out)


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


Server(("127.0.0.1", port), Handler).serve_forever()
