"""Verifies a run of checkpoints, from docs/checkpoints.md alone, with an S3 client.

    python3 verify.py BUCKET PREFIX [FOLDER]

Prints a line of JSON: the snapshots that are whole and what is wrong with the others. With
FOLDER the newest whole snapshot's files are written there. Needs boto3, and zstandard for
chunks that are compressed.
"""

import gzip
import hashlib
import json
import pathlib
import sys

import boto3
import botocore.exceptions
import zstandard

# CRC-32C (Castagnoli), reflected, from its polynomial.
TABLE = []
for n in range(256):
    for _ in range(8):
        n = (n >> 1) ^ 0x82F63B78 if n & 1 else n >> 1
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return f"{crc ^ 0xFFFFFFFF:08x}"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Damaged(Exception):
    pass


class Run:
    def __init__(self, bucket, prefix):
        self.s3, self.bucket, self.prefix = boto3.client("s3"), bucket, prefix.strip("/") + "/"
        self.parts = {}

    def get(self, key):
        try:
            return self.s3.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            raise Damaged(f"{key} is not there") from None
        except botocore.exceptions.FlexibleChecksumError:
            raise Damaged(f"{key} does not fit the checksum that the store has of it") from None

    def head(self):
        data = self.get("HEAD")
        line, end, check = data.partition(b"\n")
        if sha256(line + end) + "\n" != check.decode():
            raise Damaged("HEAD does not fit its second line")
        head = json.loads(line)
        if head["schema"] != "curfew.checkpoint/v1":
            raise Damaged("HEAD has another schema")
        return head

    def manifest(self, key, sum):
        data = self.get(key)
        if sha256(data) != sum or sum not in key:
            raise Damaged(f"{key} does not fit its SHA-256")
        return json.loads(gzip.decompress(data))

    def part(self, p):
        if p["key"] not in self.parts:
            data = self.get(p["key"])
            whole = len(data) == p["size"] and sha256(data) == p["sha256"] and p["key"].endswith(p["sha256"])
            # The CRC of every byte is slow in Python; the SHA-256 above is of all of them.
            if not whole or len(data) < 1 << 20 and crc32c(data) != p["crc32c"]:
                raise Damaged(f"{p['key']} does not fit its checksums")
            self.parts = {p["key"]: data} if len(self.parts) > 8 else self.parts | {p["key"]: data}
        return self.parts[p["key"]]

    def content(self, manifest, entry):
        for c in entry.get("chunks", []):
            data = self.part(manifest["parts"][c["part"]])[c["offset"] : c["offset"] + c["stored"]]
            if c.get("zstd"):
                data = zstandard.ZstdDecompressor().decompress(data, max_output_size=c["size"])
            if len(data) != c["size"] or sha256(data) != c["sha256"]:
                raise Damaged(f"a chunk of {entry['path']} does not fit its SHA-256")
            yield data

    def verify(self, snapshot):
        top = self.manifest(snapshot["manifest"], snapshot["sha256"])
        manifests = [self.manifest(n["manifest"], n["sha256"]) for n in top.get("nodes", [])] or [top]
        for m in manifests:
            if len({p["key"] for p in m["parts"]}) != len(m["parts"]):
                raise Damaged("a part is there twice")
            for p in m["parts"]:
                self.part(p)
            for e in m["entries"]:
                if e["kind"] == "file" and sum(map(len, self.content(m, e))) != e["size"]:
                    raise Damaged(f"{e['path']} has another size")
        return manifests


def main(bucket, prefix, folder=None):
    run = Run(bucket, prefix)
    whole, damage = [], {}
    try:
        snapshots = run.head()["snapshots"]
    except Damaged as e:
        snapshots, damage["HEAD"] = [], str(e)
    for s in snapshots:
        try:
            manifests = run.verify(s)
        except Damaged as e:
            damage[str(s["seq"])] = str(e)
            continue
        if folder and not whole:
            for e in manifests[0]["entries"]:
                at = pathlib.Path(folder, e["path"])
                if e["kind"] == "folder":
                    at.mkdir(parents=True)
                elif e["kind"] == "file":
                    at.parent.mkdir(parents=True, exist_ok=True)
                    at.write_bytes(b"".join(run.content(manifests[0], e)))
        whole.append(s["seq"])
    print(json.dumps({"whole": whole, "damage": damage}))


if __name__ == "__main__":
    main(*sys.argv[1:])
