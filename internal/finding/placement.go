package finding

import (
	"strings"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/usage"
)

// bucketOf returns the bucket of an s3:// address.
func bucketOf(uri string) (string, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(uri), "s3://")
	name, _, _ := strings.Cut(rest, "/")
	return name, ok && name != ""
}

// instanceAwayFromData finds running machines with declared data (the tag curfew:data) in a bucket
// of another region.
func instanceAwayFromData(x *Index, s *Subject) *Draft {
	if s.State != inventory.StateRunning || s.Tags[inventory.TagDataURI] == "" {
		return nil
	}
	return x.awayFrom(s, dataURIs(s.Tags[inventory.TagDataURI]))
}

// dataURIs returns the addresses in the value of the tag curfew:data.
func dataURIs(tag string) []string {
	return strings.FieldsFunc(tag, func(c rune) bool { return c == ',' || c == ' ' || c == ';' })
}

// jobAwayFromData finds training jobs with inputs in another region.
func jobAwayFromData(x *Index, s *Subject) *Draft {
	j, ok := s.Detail.(*inventory.TrainingJob)
	if !ok || s.State != inventory.StateRunning {
		return nil
	}
	return x.awayFrom(s, j.InputURIs)
}

// awayFrom returns the finding that data is in another region than its compute. The cost of the
// transfer is unknown without the traffic.
func (x *Index) awayFrom(s *Subject, uris []string) *Draft {
	for _, uri := range uris {
		name, ok := bucketOf(uri)
		if !ok {
			continue
		}
		at, ok := x.buckets[[2]string{s.Cloud, name}]
		if !ok {
			continue
		}
		b := &x.subjects[at]
		if b.Region == s.Region || b.Region == "" {
			continue
		}
		d := &Draft{Stands: true, Finding: Finding{
			Savings: Saving{Why: "how much it reads from there is not measured"}, Confidence: High,
			Because: "runs in " + s.Region + ", its data is in " + b.Region,
			Evidence: []usage.Evidence{
				Fact(s, "region", s.Region), Fact(s, "data", uri), Fact(b, "data_region", b.Region),
			},
			Fix: Fix{
				Change: change.Change{Verb: change.Move, Arguments: change.Arguments{Region: b.Region}}, Risk: Medium,
				Undo: UndoFull,
				Note: "run it in the region of its data, or copy the data once"},
		}}
		d.Cost, _ = x.Cost(s, ledger.Compute)
		if p, err := x.Rate("egress:region", b.Region); err == nil {
			d.Evidence = append(d.Evidence, usage.Fact("transfer_usd_per_gib", p.Rate.String(), p.Source))
			d.Fix.Note = Sentence(d.Fix.Note, "each GiB read costs $"+p.Rate.String())
		}
		return d
	}
	return nil
}
