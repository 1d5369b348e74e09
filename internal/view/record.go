package view

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// RecordSchema names the document of a recording.
const RecordSchema = "curfew.record/v1"

// Record is the recorded usage.
type Record struct {
	Schema string    `json:"schema"`
	From   string    `json:"from"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Output string    `json:"output"`
	// Samples are rows of the trace, Machines those that have any.
	Samples    int64                 `json:"samples"`
	Machines   int                   `json:"machines"`
	BlindSpots []inventory.BlindSpot `json:"blind_spots"`
}

// Add adds unread parts, each once.
func (d *Record) Add(spots []inventory.BlindSpot) {
	if d.BlindSpots == nil {
		d.BlindSpots = []inventory.BlindSpot{}
	}
	for _, b := range spots {
		if !slices.Contains(d.BlindSpots, b) {
			d.BlindSpots = append(d.BlindSpots, b)
		}
	}
}
