"""Serves moto for the tests.

Loading moto and its tables of machine types takes seconds, so it is done once: each
line "start" on standard input forks a server with an account of its own on a free port
of 127.0.0.1, and answers "PID URL"; each line "end PID" ends that server and answers
"ended". Everything ends with standard input.
"""

import functools
import gc
import os
import signal
import sys
import threading

from moto import backends
from moto.core import responses, serialize
from moto.moto_api._internal import mock_random
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import Client

# A call to each service that loads what the service needs.
QUERIES = [("ec2", "DescribeInstances", "2016-11-15"), ("ec2", "DescribeInstanceTypes", "2016-11-15"), ("sts", "GetCallerIdentity", "2011-06-15"),
           ("iam", "ListUsers", "2010-05-08"), ("monitoring", "DescribeAlarms", "2010-08-01"), ("autoscaling", "DescribeAutoScalingGroups", "2011-01-01"),
           ("elasticloadbalancing", "DescribeLoadBalancers", "2015-12-01"), ("rds", "DescribeDBInstances", "2014-10-31")]
TARGETS = [("sagemaker", "SageMaker.ListNotebookInstances"), ("logs", "Logs_20140328.DescribeLogGroups"), ("ssm", "AmazonSSM.DescribeParameters"),
           ("ecr", "AmazonEC2ContainerRegistry_V20150921.DescribeRepositories"), ("secretsmanager", "secretsmanager.ListSecrets"),
           ("organizations", "AWSOrganizationsV20161128.DescribeOrganization")]


def remember():
    """Keeps what moto computes again for every call although it never changes.

    This is half of the time of a short call: the folders of moto, the backend of a host, the
    methods of a class, and the time that a text says.
    """
    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules
    DomainDispatcherApplication.get_backend_for_host = functools.cache(DomainDispatcherApplication.get_backend_for_host)
    responses.method_names_from_class = functools.cache(responses.method_names_from_class)
    parse = serialize.parse_to_aware_datetime
    known = functools.lru_cache(100_000)(parse)
    # Times that are equal may differ in their zones; texts may not.
    serialize.parse_to_aware_datetime = lambda value: known(value) if isinstance(value, str) else parse(value)


class Handler(WSGIRequestHandler):
    """Answers many calls on one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True


def load(app):
    """Calls every service once, and empties the account again."""
    client = Client(app)

    def headers(service, more):
        scope = "testing/20260101/us-east-1/" + service + "/aws4_request"
        return {"Authorization": "AWS4-HMAC-SHA256 Credential=" + scope + ", SignedHeaders=host, Signature=none", **more}

    for service, action, version in QUERIES:
        client.post("/", headers=headers(service, {}), data={"Action": action, "Version": version})
    for service, target in TARGETS:
        client.post("/", headers=headers(service, {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}), data="{}")
    client.get("/", headers=headers("s3", {}))
    client.post("/moto-api/reset")


def serve(app, answer, parent):
    """Is a server until the process that forked it ends."""

    def watch():
        os.read(parent, 1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    mock_random.seed()
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    os.environ["MOTO_PORT"] = str(server.port)
    os.write(answer, f"{os.getpid()} http://127.0.0.1:{server.port}\n".encode())
    os.close(answer)
    server.serve_forever()


def main():
    remember()
    app = DomainDispatcherApplication(create_backend_app)
    app.debug = True
    load(app)
    # What is loaded stays. Python would look through it for garbage in every server, which
    # copies its memory there.
    gc.collect()
    gc.freeze()
    alive, held = os.pipe()
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        if words == ["start"]:
            if os.fork() == 0:
                os.close(held)
                os.close(0)
                serve(app, 1, alive)
                return
            continue
        os.kill(int(words[1]), signal.SIGKILL)
        os.waitpid(int(words[1]), 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()
