package finding

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestReadDataIsNotMoved checks that each source of reads, and nothing else,
// excludes a prefix from rules.
func TestReadDataIsNotMoved(t *testing.T) {
	const half = bigSize / 2
	type prefixes = []inventory.Prefix
	two := func() prefixes {
		return prefixes{
			prefix("imagenet/", half, 5000, all(half, 5000)), prefix("logs/", half, 5000, all(half, 5000)),
		}
	}
	build := func(p prefixes, more ...func(f *fixture)) func(f *fixture) {
		return func(f *fixture) {
			f.bucket("data", func(b *inventory.Bucket) {
				b.Prefixes, b.LifecycleDocument = inventory.Known(p), inventory.Known("")
			})
			for _, m := range more {
				m(f)
			}
		}
	}
	declare := func(uris ...string) func(f *fixture) { return func(f *fixture) { f.ReadData = uris } }
	job := func(uri string) func(f *fixture) {
		return func(f *fixture) {
			f.add(inventory.Resource{ID: "bert", Kind: inventory.KindTrainingJob, Type: "g5.xlarge",
				Detail: &inventory.TrainingJob{Count: 1, InputURIs: []string{uri}}})
		}
	}
	tag := func(uri string) func(f *fixture) {
		return func(f *fixture) {
			f.add(inventory.Resource{ID: "i-1", Kind: inventory.KindInstance, Type: "m5.large",
				State: inventory.StateStopped, Detail: &inventory.Instance{}}).Tags = map[string]string{
				inventory.TagDataURI: uri,
			}
		}
	}
	sent := func(bytes int64) func(f *fixture) {
		return func(f *fixture) {
			f.Bill = &Bill{Cloud: "aws", From: ago(30 * day), To: now, Flows: []bill.Flow{
				{
					Resource: "data", Account: "123456789012", Region: "us-east-1", Transfer: bill.Internet,
					Bytes: bytes,
				},
			}}
		}
	}
	quarterly := two()
	quarterly[0].LastRead, quarterly[0].ReadsSince = ago(80*day), ago(200*day)
	logged := two()
	logged[0].LoggedRead = ago(3 * day)
	for _, tc := range []struct {
		name  string
		build func(f *fixture)
		// rules are the prefixes of the proposed rules; "none" is no finding.
		rules string
		why   string
	}{
		{"nothing is known", build(two()), "whole", ""},
		{"declared", build(two(), declare("s3://data/imagenet/")), "logs/", "read_data in curfew.yaml"},
		{"declared below the prefix", build(two(), declare("s3://data/imagenet/train/")), "logs/", "read_data"},
		{"declared for another bucket", build(two(), declare("s3://other/imagenet/")), "whole", ""},
		{"declared for the bucket", build(two(), declare("s3://data")), "none", ""},
		{"the input of a training job", build(two(), job("s3://data/imagenet/")), "logs/", "bert reads it"},
		{"the tag of a machine", build(two(), tag("s3://data/imagenet/")), "logs/", "i-1 reads it"},
		{"read once a quarter", build(quarterly), "logs/", "last read on 2026-09-02"},
		{"read by the access log", build(logged), "logs/", "the access log shows a read on 2026-11-18"},
		{"a terabyte on the bill", build(two(), sent(1<<40)), "none", ""},
		{"a look on the bill", build(two(), sent(1<<30)), "whole", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			tc.build(f)
			got := "none"
			note := ""
			for _, found := range f.evaluate() {
				if found.Rule != "bucket-no-lifecycle" {
					continue
				}
				got, note = "", found.Fix.Note
				rules, err := change.Rules(found.Fix.Change.Document)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rules {
					if got += r.Prefix; r.Prefix == "" {
						got += "whole"
					}
				}
			}
			if got != tc.rules || !strings.Contains(note, tc.why) {
				t.Errorf("rules for %q, want %q; note %q, want %q", got, tc.rules, note, tc.why)
			}
		})
	}
}

// TestLifecycleRiskFollowsAccess checks that moving data is a low risk only if nothing was read for
// a quarter, and that expiring it is a high risk if access is unknown.
func TestLifecycleRiskFollowsAccess(t *testing.T) {
	for _, tc := range []struct {
		name, prefix string
		since        time.Duration // 0 if not measured
		want         Level
	}{
		{"data, not measured", "imagenet/", 0, Medium},
		{"data, a month", "imagenet/", 30 * day, Medium},
		{"data, half a year", "imagenet/", 180 * day, Low},
		{"experiments, not measured", "experiments/", 0, High},
		{"experiments, half a year", "experiments/", 180 * day, Medium},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			p := prefix(tc.prefix, bigSize, 5000, all(bigSize, 5000))
			if tc.since > 0 {
				p.ReadsSince = ago(tc.since)
			}
			f.bucket("data", func(b *inventory.Bucket) { b.Prefixes = inventory.Known([]inventory.Prefix{p}) })
			if got := only(t, f.evaluate(), "bucket-no-lifecycle").Fix; got.Risk != tc.want {
				t.Errorf("risk %s, want %s: %s", got.Risk, tc.want, got.Note)
			}
		})
	}
}
