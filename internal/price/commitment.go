package price

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Commitment is the hourly cost of a reserved machine over its term, upfront payment included.
type Commitment struct {
	Cloud, Type, Region string
	// TermMonths is the length of the term, Payment is "all-upfront", "partial-upfront" or
	// "no-upfront".
	TermMonths int64
	Payment    string
	Hourly     money.Rate
	Source     string
	AsOf       time.Time
}

// commitmentColumns is the header of data/commitments.csv. If a source states neither term nor
// payment, a price below those of all shorter terms and later payments is assumed to be 36 months
// all upfront, and the source says that this is inferred.
var commitmentColumns = []string{"cloud", "name", "region", "kind", "term_months", "payment", "usd", "source", "as_of"}

// Commitments returns the commitment prices of a machine type in a region, by term and payment.
func (b *Book) Commitments(cloud, machineType, region string) []Commitment {
	var out []Commitment
	for _, c := range b.commitments {
		if c.Cloud == cloud && c.Type == machineType && c.Region == region {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(x, y Commitment) int {
		return cmp.Or(cmp.Compare(x.TermMonths, y.TermMonths), cmp.Compare(x.Payment, y.Payment))
	})
	return out
}

func readCommitments(r io.Reader) ([]Commitment, error) {
	var out []Commitment
	err := rows(r, commitmentColumns, func(t *table) error {
		var err error
		c := Commitment{
			Cloud: t.text("cloud"), Type: t.text("name"), Region: t.text("region"), Payment: t.text("payment"),
			Source: t.text("source"),
		}
		if c.TermMonths, err = t.count("term_months"); err != nil {
			return err
		}
		if c.Hourly, err = money.ParseRate(t.text("usd")); err != nil {
			return t.errorf("usd: %w", err)
		}
		if c.AsOf, err = time.Parse(time.DateOnly, t.text("as_of")); err != nil {
			return t.errorf("as_of: %w", err)
		}
		if t.text("kind") != string(Reserved) || c.Cloud == "" || c.Type == "" ||
			c.Region == "" || c.TermMonths == 0 ||
			c.Hourly <= 0 || c.Source == "" ||
			!slices.Contains([]string{"all-upfront", "partial-upfront", "no-upfront"}, c.Payment) {
			return t.errorf(
				"it is no price of a commitment: a cloud, type, region, kind reserved, term, payment, price and " +
					"source are expected")
		}
		if i := len(out) - 1; i >= 0 && out[i].Type == c.Type && out[i].Region == c.Region &&
			out[i].TermMonths == c.TermMonths && out[i].Payment == c.Payment {
			return fmt.Errorf("line %d: %s in %s is there twice", t.line, c.Type, c.Region)
		}
		out = append(out, c)
		return nil
	})
	return out, err
}
