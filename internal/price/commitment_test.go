package price

import (
	"encoding/csv"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
)

// TestCommitmentsMatchSources compares every reserved price of the book with its source data, and
// checks that it is below the on-demand price.
func TestCommitmentsMatchSources(t *testing.T) {
	f, err := os.Open("../../../shared/data/prices/aws_gpu_reserved.csv")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the shared data is not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, row := range rows[1:] {
		want, err := money.ParseRate(row[2])
		if err != nil {
			t.Fatal(err)
		}
		got := b.Commitments(AWS, row[0], row[1])
		if len(got) != 1 || got[0].Hourly != want || got[0].TermMonths != 36 || got[0].AsOf.Year() != 2024 ||
			!strings.Contains(got[0].Source, "inferred") {
			t.Errorf("%s in %s: %+v, want %s", row[0], row[1], got, want)
			continue
		}
		if p, err := b.OnDemand(row[0], row[1]); err == nil {
			held++
			if got[0].Hourly >= p.Rate {
				t.Errorf("%s in %s costs %s reserved and %s on demand", row[0], row[1], got[0].Hourly, p.Rate)
			}
		}
	}
	if held < 30 || len(b.commitments) != len(rows)-1 {
		t.Errorf("%d of %d are reserved against on demand; the source has %d", held, len(b.commitments), len(rows)-1)
	}
	if got := b.Commitments(AWS, "p4d.24xlarge", "nowhere"); len(got) != 0 {
		t.Errorf("a price that no source has: %+v", got)
	}
}
