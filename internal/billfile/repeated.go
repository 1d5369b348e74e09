package billfile

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/plain"
)

// several reports whether files of more than one delivery may hold one period: only those can
// repeat one another.
func (r *reading) several() bool {
	first := map[time.Time]string{} // deliveries by the period of their partition
	for i, p := range r.export.parts {
		delivery, ok := first[p.start]
		if ok && (p.delivery == "" || p.delivery != delivery) {
			return true
		}
		if i > 0 && (p.start.IsZero() || r.export.parts[0].start.IsZero()) && !ok {
			return true
		}
		first[p.start] = p.delivery
	}
	return false
}

// printsOf returns the fingerprints to which a file's lines are added; nil if none are needed.
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

// mergePrints adds the fingerprints of one sink for each file.
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
	parts := r.export.parts
	places := slices.Sorted(maps.Keys(r.prints))
	prints := make([]*bill.Fingerprints, len(places))
	for i, at := range places {
		prints[i] = r.prints[at]
	}
	together := func(one, other int) bool {
		delivery := parts[places[one]].delivery
		return delivery != "" && delivery == parts[places[other]].delivery
	}
	for _, twice := range bill.Repetitions(prints, together) {
		one, other := parts[places[twice.One]].name, parts[places[twice.Other]].name
		lines := twice.Same + twice.Restated
		costs := ""
		if twice.Restated > 0 {
			costs = fmt.Sprintf(", %s of them with other costs", plain.Count(twice.Restated, "row"))
		}
		if 2*lines >= min(prints[twice.One].Lines(), prints[twice.Other].Lines()) {
			return &Error{File: other, Reason: fmt.Sprintf("it holds %s of %s again%s "+
				"(the same provider, account, period, resource and day), which would count twice: "+
				"import the newer file alone, or join them to one file if both count",
				plain.Count(lines, "row"), one, costs)}
		}
		if twice.Same > 0 {
			r.notes = append(r.notes, fmt.Sprintf("%s and %s both hold %s: they count twice",
				one, other, plain.Count(twice.Same, "equal row")))
		}
	}
	return nil
}
