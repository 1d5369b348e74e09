package action

import "time"

const (
	// clockSlack is by how much two readings of clocks may differ without a clock
	// having been set: readings are not taken at one instant, and clocks are slewed.
	clockSlack = time.Minute
	// DefaultMaxRoundGap is the longest pause between two rounds that is vouched for.
	DefaultMaxRoundGap = 2 * time.Hour
)

// jumped says whether nobody can vouch for the time between two readings: the wall
// clock was set, as far as the uptime of one boot or a step backwards shows, or the
// pause was longer than gap.
func jumped(last, now Clock, gap time.Duration) bool {
	wall := now.Wall.Sub(last.Wall)
	if wall > gap || wall < -clockSlack {
		return true
	}
	if last.Boot == "" || last.Boot != now.Boot {
		return false
	}
	return wall < 0 || (wall-(now.Uptime-last.Uptime)).Abs() > clockSlack
}

// clock is the reading at which a round last vouched for the item.
func (it Item) clock() Clock { return Clock{Wall: it.UpdatedAt, Boot: it.Boot, Uptime: it.Uptime} }
