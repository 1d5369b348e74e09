package billfile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/plain"
)

// several says whether files of more than one delivery are read: only those can repeat one
// another.
func (r *reading) several() bool {
	parts := r.export.parts
	for i := range parts {
		if parts[i].delivery == "" && len(parts) > 1 || parts[i].delivery != parts[0].delivery {
			return true
		}
	}
	return false
}

// printsOf returns the fingerprints to which a file's lines are added; nil where none are
// needed.
func (s *sink) printsOf(file int) *bill.Fingerprints {
	if s.reading.prints == nil {
		return nil
	}
	if s.printed == nil {
		s.printed = map[int]*bill.Fingerprints{}
	}
	if s.printed[file] == nil {
		s.printed[file] = bill.NewFingerprints(s.reading.seed)
	}
	return s.printed[file]
}

// mergePrints adds what one sink read of each file.
func (r *reading) mergePrints(of map[int]*bill.Fingerprints) {
	for file, f := range of {
		if r.prints[file] == nil {
			r.prints[file] = f
		} else {
			r.prints[file].Merge(f)
		}
	}
}

// repeated refuses files of which one holds at least half of the other's lines again: a month
// that was delivered twice. Fewer lines are named and count in both files, because a bill may
// hold equal lines.
func (r *reading) repeated() error {
	places := slices.Sorted(maps.Keys(r.prints))
	for i, x := range places {
		for _, y := range places[i+1:] {
			one, other := r.export.parts[x], r.export.parts[y]
			if one.delivery != "" && one.delivery == other.delivery {
				continue
			}
			same, restated := r.prints[x].Repeated(r.prints[y])
			twice := same + restated
			if twice == 0 {
				continue
			}
			costs := ""
			if restated > 0 {
				costs = fmt.Sprintf(", %s of them with other costs", plain.Count(restated, "row"))
			}
			if 2*twice >= min(r.prints[x].Lines(), r.prints[y].Lines()) {
				return &Error{File: other.name, Reason: fmt.Sprintf("it holds %s of %s again%s (the same provider, account, period, resource and day), "+
					"which would count twice: import the newer file alone, or join them to one file if both count", plain.Count(twice, "row"), one.name, costs)}
			}
			if same > 0 {
				r.notes = append(r.notes, fmt.Sprintf("%s and %s both hold %s: they count twice", one.name, other.name, plain.Count(same, "equal row")))
			}
		}
	}
	return nil
}
