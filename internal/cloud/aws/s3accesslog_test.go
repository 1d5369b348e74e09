package aws

import (
	"strings"
	"testing"
	"time"
)

// record returns a record of an access log about a key, with an operation and a status.
func record(bucket, at, operation, key, status string) string {
	return "79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be " + bucket + " [" + at + "] 192.0.2.3 " +
		"arn:aws:iam::123456789012:user/ana 3E57427F3EXAMPLE " + operation + " " + key + " \"GET /" + key +
		"?versionId=x HTTP/1.1\" " + status + " - 2662992 3462992 70 10 \"-\" \"S3Console/0.4\" - s9lzHYrFp76ZVxRcpX9 " +
		"SigV4 ECDHE-RSA-AES128-GCM-SHA256 AuthHeader data.s3.us-east-1.amazonaws.com TLSV1.2 - -\n"
}

// TestAccessLogNamesReadPrefixes checks that only successful reads of the bucket's objects mark a
// prefix, not other operations, failures, other buckets or malformed records.
func TestAccessLogNamesReadPrefixes(t *testing.T) {
	const at = "06/Nov/2026:00:00:38 +0000"
	read := time.Date(2026, 11, 6, 0, 0, 38, 0, time.UTC)
	for name, tc := range map[string]struct {
		text string
		want map[string]time.Time
	}{
		"a read": {
			record("data", at, "REST.GET.OBJECT", "imagenet/a.tar", "200"),
			map[string]time.Time{"imagenet/": read},
		},
		"a range, of a key that is encoded twice": {
			record("data", at, "REST.GET.OBJECT", "raw%2520files/a", "206"), map[string]time.Time{"raw files/": read},
		},
		"a copy": {
			record("data", at, "REST.COPY.OBJECT_GET", "raw%20files/a", "200"),
			map[string]time.Time{"raw files/": read},
		},
		"the newest of two": {
			record("data", at, "REST.GET.OBJECT", "imagenet/a", "200") +
				record("data", "05/Nov/2026:23:59:59 +0000", "REST.GET.OBJECT", "imagenet/b", "200"),
			map[string]time.Time{"imagenet/": read},
		},
		"a write":          {record("data", at, "REST.PUT.OBJECT", "imagenet/a", "200"), nil},
		"a look":           {record("data", at, "REST.HEAD.OBJECT", "imagenet/a", "200"), nil},
		"a refusal":        {record("data", at, "REST.GET.OBJECT", "imagenet/a", "403"), nil},
		"another bucket":   {record("other", at, "REST.GET.OBJECT", "imagenet/a", "200"), nil},
		"a time of no use": {record("data", "yesterday", "REST.GET.OBJECT", "imagenet/a", "200"), nil},
		"half a record": {
			strings.SplitAfter(record("data", at, "REST.GET.OBJECT", "imagenet/a", "200"), "OBJECT")[0], nil,
		},
		"an unknown prefix": {
			record("data", at, "REST.GET.OBJECT", "elsewhere/a", "200"), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListing(read, nil)
			for _, of := range []string{"imagenet/", "raw files/"} {
				l.byPrefix[of] = &prefix{}
			}
			if err := readAccessLog(strings.NewReader(tc.text), "data", l); err != nil {
				t.Fatal(err)
			}
			for of, f := range l.byPrefix {
				if !f.LoggedRead.Equal(tc.want[of]) {
					t.Errorf("%s was read at %s, want %s", of, f.LoggedRead, tc.want[of])
				}
			}
		})
	}
}

// FuzzAccessRecord checks that an accepted record has a time.
func FuzzAccessRecord(f *testing.F) {
	f.Add(record("data", "06/Nov/2026:00:00:38 +0000", "REST.GET.OBJECT", "imagenet/a.tar", "200"))
	f.Add("a b [c] d e f g \"h\" 200")
	f.Fuzz(func(t *testing.T, line string) {
		if bucket, _, at, ok := accessRecord(line); ok && (at.IsZero() || bucket == "") {
			t.Errorf("%q of %q at %s", line, bucket, at)
		}
	})
}
