package price

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Bands bound the deviation of a price from comparable prices, as factors in either direction.
type Bands struct {
	// Old applies to the previous price. List price cuts stay within it: AWS cut P5 by 44% in June
	// 2025.
	Old float64
	// OldSpot applies to the previous spot price. Spot follows demand: over half a year a price
	// changes by several times.
	OldSpot float64
	// Regions applies to the same machine on demand in other regions of its cloud. AWS regions are
	// within 1.5 of each other; 2.3 in GCP's catalog is a commitment price mistaken for on-demand.
	Regions float64
	// SpotRegions applies to spot in other regions; it follows each region's demand.
	SpotRegions float64
	// Items applies to the same item in other regions: egress is within 4.9.
	Items float64
	// Same applies to the price of one device, against the same accelerator in other machines and
	// clouds. A machine with many cores and one device costs four times its device's usual price.
	Same float64
	// Similar applies to accelerators released within SimilarYears with the same stated precision,
	// by BF16 TFLOP/s and by GiB; a price is refused only if both are out of band on the same side.
	// Actual prices are within 7 by TFLOP/s and within 3 by GiB of their median.
	Similar      float64
	SimilarYears int
	// Defaults applies to a cloud's default rates, against those of other clouds.
	Defaults float64
	// Managed applies to managed machines, against the same machine without the service: SageMaker
	// is 15 to 40% above.
	Managed float64
}

// DefaultBands returns the bands of [Book.Update].
func DefaultBands() Bands {
	return Bands{
		Old: 3, OldSpot: 10, Regions: 2, SpotRegions: 12, Items: 6, Same: 6, Similar: 8, SimilarYears: 4, Defaults: 5,
		Managed: 3,
	}
}

// equalWithin is the factor within which two prices are equal: catalogs round to four digits.
const equalWithin = 1.001

// apart reports whether two rates differ by more than a factor. A rate that is not positive differs
// from everything.
func apart(a, b money.Rate, factor float64) bool {
	if a <= 0 || b <= 0 {
		return true
	}
	return float64(a) > float64(b)*factor || float64(b) > float64(a)*factor
}

// Check returns why an entry on its own cannot be a price: zero or negative, a placeholder, a
// promotion, a kind that cannot be compared. It returns "" if it finds no problem; [Book.Update]
// also compares entries with others.
func Check(e Entry) string {
	for _, r := range e.Price.rates() {
		switch {
		case r == 0:
			return "a price of zero is a missing price"
		case r < 0:
			return fmt.Sprintf("a price of %s is below zero", r)
		}
	}
	switch e.Term {
	case Reserved:
		return "a reserved price whose term and upfront part are not stated cannot be compared"
	case CapacityBlock:
		return "a capacity block is paid up front for a window, not by the hour"
	}
	if err := e.checkComplete(); err != nil {
		return err.Error()
	}
	if strings.HasSuffix(strings.ToLower(e.Type), "_promo") {
		return "a promotion: its price is far below the normal one and ends without notice"
	}
	if e.Service != Rates && placeholder(e.Price.Rate) {
		return fmt.Sprintf("%s looks like a placeholder", e.Price.Rate)
	}
	return ""
}

func (u *update) intrinsic(c *candidate) string { return Check(c.Entry) }

// placeholder recognizes catalog values for missing prices: whole hundreds of dollars an hour
// (700.0 for TPUs) and nines (999.99).
func placeholder(r money.Rate) bool {
	const hundred = 100 * money.USDPerUnit
	if r >= hundred && r%hundred == 0 {
		return true
	}
	digits := strings.Trim(strings.ReplaceAll(r.String(), ".", ""), "0")
	return r >= 99*money.USDPerUnit && len(digits) >= 3 && strings.Trim(digits, "9") == ""
}

// maxRepeated is the maximum number of unrelated accelerators with one price in an update of one
// cloud.
const maxRepeated = 3

// repeated refuses one price given to unrelated accelerators.
func (u *update) repeated() {
	type price struct {
		cloud string
		term  Term
		rate  money.Rate
	}
	rows, devices := map[price][]*candidate{}, map[price][]string{}
	for c := range u.accepted() {
		if c.Service == Compute && c.Accelerator != "" {
			p := price{c.Cloud, c.Term, c.Price.Rate}
			rows[p] = append(rows[p], c)
			if !slices.Contains(devices[p], c.Accelerator) {
				devices[p] = append(devices[p], c.Accelerator)
			}
		}
	}
	for p, names := range devices {
		if len(names) >= maxRepeated {
			for _, c := range rows[p] {
				c.reason = fmt.Sprintf("%s is given to %d unrelated accelerators: it looks like a placeholder", p.rate,
					len(names))
			}
		}
	}
}

// opposites returns the spot price of an on-demand candidate and vice versa, from the update or
// else from the book, 0 if there is none. Zones must have been merged.
func (u *update) opposites() func(*candidate) money.Rate {
	fresh := map[place]money.Rate{}
	for c := range u.accepted() {
		fresh[c.place()] = c.Price.Rate
	}
	return func(c *candidate) money.Rate {
		want := c.place()
		want.term = Spot
		if c.Term == Spot {
			want.term = OnDemand
		}
		if r, ok := fresh[want]; ok || c.Part != Whole {
			return r
		}
		held, _ := u.book.find(want.key)
		return held.Rate
	}
}

// discount refuses a spot price that is not below on-demand, and an on-demand price below spot. If
// one source gives both, neither can be trusted.
func (u *update) discount() func(*candidate) string {
	opposite := u.opposites()
	return func(c *candidate) string {
		other := opposite(c)
		switch {
		case c.Service != Compute || other <= 0:
		case !apart(c.Price.Rate, other, equalWithin):
			if c.Term == Spot {
				return fmt.Sprintf("no discount: spot equals on-demand, %s", other)
			}
		case c.Term == Spot && c.Price.Rate > other:
			return fmt.Sprintf("spot at %s is above on-demand, %s", c.Price.Rate, other)
		case c.Term == OnDemand && c.Price.Rate < other:
			return fmt.Sprintf("on-demand at %s is below spot, %s: it looks like a commitment's price", c.Price.Rate,
				other)
		}
		return ""
	}
}

// againstOld compares with the previous price.
func (u *update) againstOld(c *candidate) string {
	factor := u.bands.Old
	if c.Term == Spot {
		factor = u.bands.OldSpot
	}
	old, ok := u.book.find(c.key())
	if !ok || !apart(c.Price.Rate, old.Rate, factor) {
		return ""
	}
	return fmt.Sprintf("%s is more than %g times off the price held, %s of %s", c.Price.Rate, factor, old.Rate,
		old.AsOf.Format(time.DateOnly))
}

// outvoted reports whether more than half of the peers, and at least a minimum number, deviate from
// r by more than factor.
func outvoted(r money.Rate, peers []money.Rate, factor float64, least int) bool {
	off := 0
	for _, p := range peers {
		if apart(r, p, factor) {
			off++
		}
	}
	return off >= least && off*2 > len(peers)
}

// acrossRegions compares with the same price in other regions of its cloud, of the update and the
// book.
func (u *update) acrossRegions() func(*candidate) string {
	type regional struct {
		region string
		rate   money.Rate
	}
	same := map[place][]regional{}
	updated := map[key]bool{}
	elsewhere := func(p place) place {
		p.region, p.zone = "", ""
		return p
	}
	for c := range u.accepted() {
		same[elsewhere(c.place())] = append(same[elsewhere(c.place())], regional{c.Region, c.Price.Rate})
		updated[c.key()] = true
	}
	for _, held := range u.book.Entries() {
		c := candidate{Entry: held}
		if p := elsewhere(c.place()); same[p] != nil && !updated[held.key()] {
			same[p] = append(same[p], regional{held.Region, held.Price.Rate})
		}
	}
	return func(c *candidate) string {
		var peers []money.Rate
		for _, r := range same[elsewhere(c.place())] {
			if r.region != c.Region {
				peers = append(peers, r.rate)
			}
		}
		factor := u.bands.Regions
		switch {
		case c.Service == Rates:
			factor = u.bands.Items
		case c.Term == Spot:
			factor = u.bands.SpotRegions
		}
		if !outvoted(c.Price.Rate, peers, factor, 1) {
			return ""
		}
		slices.Sort(peers)
		return fmt.Sprintf("%s is more than %g times off its price in other regions, %s", c.Price.Rate, factor,
			peers[len(peers)/2])
	}
}
