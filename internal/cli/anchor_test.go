package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// logged is a desktop whose audit log grows by freezes.
type logged struct{ *desktop }

func (l logged) grow(n int, why string) {
	l.t.Helper()
	for range n {
		l.must(ExitDone, "", "freeze", "--reason", why)
	}
}

// must gives a command, which ends in a code and says something.
func (l logged) must(want int, says string, args ...string) string {
	l.t.Helper()
	code, out, errs := l.run(args...)
	if code != want || !strings.Contains(out+errs, says) || want != ExitDone && strings.Count(errs, "\n") != 1 {
		l.t.Fatalf("%v: exit %d, want %d and %q\n%s%s", args, code, want, says, out, errs)
	}
	return out
}

// copyState copies the database there and back.
func (l logged) copyState(from, to string) {
	l.t.Helper()
	for _, end := range []string{"", "-wal", "-shm"} {
		text, err := os.ReadFile(filepath.Join(l.dir, from+end))
		if os.IsNotExist(err) {
			_ = os.Remove(filepath.Join(l.dir, to+end))
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(l.dir, to+end), text, 0o600)
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// TestAnchorDetectsChangedAuditLog checks that a log that was cut off, changed or rebuilt is named,
// though its own chain holds, and so is an anchor that cannot be trusted.
func TestAnchorDetectsChangedAuditLog(t *testing.T) {
	l := logged{newDesktop(t)}
	const db = "data/curfew.db"
	l.must(ExitError, "the audit log is empty", "audit", "--anchor", "anchor.json")
	l.grow(3, "first")
	l.copyState(db, "early.db")
	l.grow(4, "second")
	said := l.must(ExitDone, "entry 7 of", "audit", "--anchor", "anchor.json")
	public := said[strings.Index(said, "ed25519:"):]
	public = public[:strings.IndexByte(public, '\n')]
	if info, err := os.Stat(filepath.Join(l.dir, "data", "audit.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", info, err)
	}
	l.must(ExitDone, "entry 7 is the one that was anchored", "audit", "--verify", "--anchor", "anchor.json")
	l.grow(2, "third")
	l.must(ExitDone, "9 entries, unchanged\nentry 7 is", "audit", "--verify", "--anchor", "anchor.json")
	var doc struct {
		Entries int
		Anchor  action.Anchor
	}
	if err := json.Unmarshal(
		[]byte(l.must(ExitDone, "", "audit", "--verify", "--anchor", "anchor.json", "-o", "json")),
		&doc); err != nil || doc.Entries != 9 || doc.Anchor.Entry != 7 || doc.Anchor.Key != public {
		t.Errorf("verified: %+v, %v", doc, err)
	}
	l.copyState(db, "good.db")

	for _, tc := range []struct {
		name, from string
		grow       int
		says       string
	}{
		{"cut off", "early.db", 0, "it ends at entry 3, and held entry 7"},
		{"changed, as long as before", "early.db", 6, "between entry 2 and entry 7"},
		{"rebuilt", "none.db", 9, "entry 1: the audit log was changed: the chain was rebuilt"},
		{"emptied", "none.db", 0, "it ends at entry 0, and held entry 7"},
	} {
		l.copyState(tc.from, db)
		l.grow(tc.grow, "forged")
		l.must(ExitDone, "unchanged", "audit", "--verify")
		l.must(ExitError, tc.says, "audit", "--verify", "--anchor", "anchor.json")
		// Nor is the anchor given up for such a log.
		l.must(ExitError, tc.says, "audit", "--anchor", "anchor.json")
	}
	l.copyState("good.db", db)
	l.must(ExitDone, "entry 9", "audit", "--anchor", "anchor.json")

	good, err := os.ReadFile(filepath.Join(l.dir, "anchor.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		text, says string
		want       int
	}{
		"nothing":      {"", "it is no anchor", ExitUsage},
		"another file": {"budgets: []\n", "it is no anchor", ExitUsage},
		"another key in it": {
			strings.Replace(string(good), `"entry"`, `"extra": 1, "entry"`, 1), "it is no anchor", ExitUsage,
		},
		"more after it": {string(good) + "{}", "something follows", ExitUsage},
		"no hash": {
			strings.Replace(string(good), `"hash": "`, `"hash": "zz`, 1), "it names no entry", ExitUsage,
		},
		"too large": {strings.Repeat(" ", 1<<20) + string(good), "", ExitUsage},
		"another entry": {
			strings.Replace(string(good), `"entry": 9`, `"entry": 7`, 1), "its signature is wrong", ExitError,
		},
		"another signer": {
			strings.Replace(string(good), public, "ed25519:"+strings.Repeat("A", 43)+"=", 1),
			"signed with another key",
			ExitError,
		},
	} {
		l.write("bad.json", tc.text)
		t.Log(name)
		l.must(tc.want, tc.says, "audit", "--verify", "--anchor", "bad.json")
		if name != "another entry" && name != "another signer" {
			l.must(ExitUsage, "", "audit", "--anchor", "bad.json") // a file that is none is not written over
		}
	}
	l.must(ExitUsage, "no such file", "audit", "--verify", "--anchor", "none.json")
	l.must(ExitUsage, "s3://bucket/key", "audit", "--verify", "--anchor", "s3://bucket")

	// Another machine verifies by the public key alone, and a wrong one is told.
	if err := os.Rename(filepath.Join(l.dir, "data", "audit.key"), filepath.Join(l.dir, "moved.key")); err != nil {
		t.Fatal(err)
	}
	l.must(ExitUsage, "there is no key here", "audit", "--verify", "--anchor", "anchor.json")
	l.env["CURFEW_AUDIT_PUBLIC_KEY"] = public
	l.must(ExitDone, "entry 9 is", "audit", "--verify", "--anchor", "anchor.json")
	l.must(ExitUsage, "audit.public_key is", "audit", "--anchor", "other.json") // a new key is not the one that counts
	l.env["CURFEW_AUDIT_PUBLIC_KEY"] = "ed25519:AAAA"
	l.must(ExitUsage, "audit.public_key", "audit", "--verify", "--anchor", "anchor.json")
	delete(l.env, "CURFEW_AUDIT_PUBLIC_KEY")
	l.must(ExitError, "signed with another key", "audit", "--verify", "--anchor", "anchor.json")
	l.env["CURFEW_AUDIT_KEY"] = "moved.key"
	l.must(ExitDone, "entry 9 is", "audit", "--verify", "--anchor", "anchor.json")
	if err := os.Chmod(filepath.Join(l.dir, "moved.key"), 0o640); err != nil {
		t.Fatal(err)
	}
	l.must(ExitUsage, "others can read it", "audit", "--verify", "--anchor", "anchor.json")
}

// TestAnchorInBucket is written to and read from S3 as the service answers.
func TestAnchorInBucket(t *testing.T) {
	s, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, e := range s.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	api := s3.NewFromConfig(s.Config("us-east-1"), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: awssdk.String("anchors")}); err != nil {
		t.Fatal(err)
	}
	l := logged{newDesktop(t)}
	l.grow(3, "first")
	const at = "s3://anchors/curfew/anchor.json"
	l.must(ExitDone, "entry 3 of", "audit", "--anchor", at)
	l.must(ExitUsage, "there is no such object", "audit", "--verify", "--anchor", "s3://anchors/none.json")
	l.grow(1, "second")
	l.must(ExitDone, "entry 3 is the one", "audit", "--verify", "--anchor", at)
	l.must(ExitDone, "entry 4 of", "audit", "--anchor", at)
	l.must(ExitDone, "entry 4 is the one", "audit", "--verify", "--anchor", at)
	l.must(ExitUsage, "there is none of that name", "audit", "--verify", "--anchor", "s3://no-such-bucket/anchor.json")
	if _, err := api.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: awssdk.String("anchors"), Key: awssdk.String("curfew/anchor.json"),
		Body: bytes.NewReader([]byte("<html>")),
	}); err != nil {
		t.Fatal(err)
	}
	l.must(ExitUsage, "it is no anchor", "audit", "--verify", "--anchor", at)
}
