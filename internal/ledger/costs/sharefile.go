package costs

import (
	"io"
	"math/big"
	"strings"

	"github.com/curfew-dev/curfew/internal/plan"
)

// Shared is a workload's share of a machine, named as in a file.
type Shared struct {
	// Resource is the machine's identifier.
	Resource string
	Share
}

// SharesFile is the format of a file of machine shares.
var SharesFile = plan.Layout{
	Required: []plan.Column{
		{Name: "resource", Doc: "id of the machine"},
		{Name: "workload", Doc: "name of the workload"},
		{Name: "share", Doc: "share of the machine: 3/8 (GPUs), 2/7 (MIG slices), 0.25 or 25%"},
	},
	Optional: []plan.Column{
		{Name: "used", Doc: "part of it that was used; empty is unknown"},
	},
}

// ReadShares reads `resource,workload,share[,used]`: the allocated part of a machine and the used
// part of that. A share is "3/8" (GPUs), "2/7" (MIG slices), "0.25" or "25%" (time slices,
// requests); an empty used is unknown. Mistakes are a *plan.FileError with their position.
func ReadShares(name string, r io.Reader) ([]Shared, error) {
	var out []Shared
	err := plan.ReadCSV(name, r, SharesFile, func(row plan.Row) error {
		s := Shared{Resource: row.Text("resource"), Share: Share{Workload: row.Text("workload")}}
		for _, column := range []string{"resource", "workload"} {
			if row.Text(column) == "" {
				return row.Error(column, "a share needs its %s", column)
			}
		}
		var ok bool
		if s.Part, s.Of, ok = parsePart(row.Text("share")); !ok {
			return row.Error("share", "%q is not a share of 0 to 1, such as 3/8, 0.25 or 25%%", row.Text("share"))
		}
		if text := row.Text("used"); text != "" {
			if s.Used, s.UsedOf, ok = parsePart(text); !ok {
				return row.Error("used", "%q is not a share of 0 to 1, such as 0.8 or 80%%", text)
			}
		}
		out = append(out, s)
		return nil
	})
	return out, err
}

// parsePart reads an exact share of 0 to 1.
func parsePart(text string) (part, of int64, ok bool) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	if len(number) > 20 || strings.Trim(number, "0123456789./") != "" {
		return 0, 0, false
	}
	v, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, 0, false
	}
	if percent {
		v.Quo(v, big.NewRat(100, 1))
	}
	if v.Sign() < 0 || v.Cmp(big.NewRat(1, 1)) > 0 || !v.Num().IsInt64() || !v.Denom().IsInt64() {
		return 0, 0, false
	}
	return v.Num().Int64(), v.Denom().Int64(), true
}
