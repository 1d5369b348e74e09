package spot

import (
	"cmp"
	"slices"
	"time"
)

// Placements are the spot placement scores of a machine type: the likelihood that AWS gives a request
// at a time, by zone. They say nothing of how long machines run then, which bands and traces do.
type Placements struct {
	Type   string `json:"type"`
	Region string `json:"region"`
	// Machines is the size of the request.
	Machines int64     `json:"machines"`
	At       time.Time `json:"at"`
	// Scores are by zone, the best first; empty if AWS has none.
	Scores []Placement `json:"scores"`
}

// Placement is the score of one zone.
type Placement struct {
	// ZoneID names the zone for every account alike.
	ZoneID string `json:"zone_id"`
	// Score is 1 to 10; 10 is likely to succeed, without a guarantee.
	Score int `json:"score"`
}

// NewPlacements sorts scores by zone.
func NewPlacements(machineType, region string, machines int64, at time.Time, scores []Placement) Placements {
	scores = append([]Placement{}, scores...)
	slices.SortFunc(scores, func(x, y Placement) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(x.ZoneID, y.ZoneID))
	})
	return Placements{machineType, region, machines, at.UTC().Truncate(time.Second), scores}
}
