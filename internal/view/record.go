package view

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// RecordSchema names the document of a recording.
const RecordSchema = "curfew.record/v1"

// Record is what was recorded.
type Record struct {
	Schema string    `json:"schema"`
	From   string    `json:"from"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Output string    `json:"output"`
	// Samples are rows of the trace, Machines those that have any.
	Samples    int64       `json:"samples"`
	Machines   int         `json:"machines"`
	BlindSpots []BlindSpot `json:"blind_spots"`
}

// Add adds what could not be read, once.
func (d *Record) Add(spots []inventory.BlindSpot) {
	if d.BlindSpots == nil {
		d.BlindSpots = []BlindSpot{}
	}
	for _, b := range spots {
		if x := (BlindSpot{What: b.What, Why: b.Why, Effect: b.Effect}); !slices.Contains(d.BlindSpots, x) {
			d.BlindSpots = append(d.BlindSpots, x)
		}
	}
}
