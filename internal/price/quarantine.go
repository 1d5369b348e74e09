package price

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Bands are how far a price may lie from what it is compared with, as factors
// either way.
type Bands struct {
	// Old is against the price that is held. Cuts of list prices stay within it:
	// AWS cut P5 by 44% in June 2025.
	Old float64
	// OldSpot is the same for spot, which follows demand: half a year apart the same
	// type costs several times more or less.
	OldSpot float64
	// Regions is against the same machine on demand in other regions of its cloud.
	// AWS's own regions lie within 1.5 of one another; 2.3 in GCP's catalog is a
	// commitment's price taken for on-demand.
	Regions float64
	// SpotRegions is the same for spot, whose price follows each region's demand.
	SpotRegions float64
	// Items is against the same item in other regions: egress within 4.9.
	Items float64
	// Same is for the price of one device against the same accelerator in other
	// machines and clouds. A machine with many cores and one device costs four
	// times its device's usual price.
	Same float64
	// Similar is against accelerators released within SimilarYears of it and
	// stated at the same precision, by BF16 TFLOP/s and by GiB; only out of band in
	// both, on the same side, counts. Prices in the field lie within 7 by TFLOP/s
	// and within 3 by GiB of their median.
	Similar      float64
	SimilarYears int
	// Defaults is for a cloud's default rates against those of other clouds.
	Defaults float64
	// Managed is against the price of the same machine without the service:
	// SageMaker is 15 to 40% above.
	Managed float64
}

// DefaultBands returns the bands of [Book.Update].
func DefaultBands() Bands {
	return Bands{
		Old: 3, OldSpot: 10, Regions: 2, SpotRegions: 12, Items: 6, Same: 6, Similar: 8, SimilarYears: 4, Defaults: 5,
		Managed: 3,
	}
}

// equalWithin is the factor within which two prices are the same: catalogs round
// one of them to four digits.
const equalWithin = 1.001

// apart reports whether two rates differ by more than a factor. A rate that is not
// above zero is apart from everything.
func apart(a, b money.Rate, factor float64) bool {
	if a <= 0 || b <= 0 {
		return true
	}
	return float64(a) > float64(b)*factor || float64(b) > float64(a)*factor
}

// Check returns why an entry cannot be a price, looking at it alone: zero or
// negative, a placeholder, a promotion, a kind that cannot be compared. It returns
// "" for an entry with which nothing is wrong so far; [Book.Update] compares it
// with others.
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
	if err := e.whole(); err != nil {
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

// placeholder recognizes what catalogs write where they have no price of a
// machine: whole hundreds of dollars an hour (700.0 for TPUs) and nines (999.99).
func placeholder(r money.Rate) bool {
	const hundred = 100 * money.USDPerUnit
	if r >= hundred && r%hundred == 0 {
		return true
	}
	digits := strings.Trim(strings.ReplaceAll(r.String(), ".", ""), "0")
	return r >= 99*money.USDPerUnit && len(digits) >= 3 && strings.Trim(digits, "9") == ""
}

// repeatedOver is how many unrelated accelerators may not share one price in an
// update of one cloud.
const repeatedOver = 3

// repeated refuses one price given to unrelated accelerators.
func (u *update) repeated() {
	type price struct {
		cloud string
		term  Term
		rate  money.Rate
	}
	rows, devices := map[price][]*candidate{}, map[price][]string{}
	for c := range u.living() {
		if c.Service == Compute && c.Accelerator != "" {
			p := price{c.Cloud, c.Term, c.Price.Rate}
			rows[p] = append(rows[p], c)
			if !slices.Contains(devices[p], c.Accelerator) {
				devices[p] = append(devices[p], c.Accelerator)
			}
		}
	}
	for p, names := range devices {
		if len(names) >= repeatedOver {
			for _, c := range rows[p] {
				c.reason = fmt.Sprintf("%s is given to %d unrelated accelerators: it looks like a placeholder", p.rate,
					len(names))
			}
		}
	}
}

// opposites returns the spot price of an on-demand candidate and the other way
// round: of the update first, then of the book, 0 when there is none. It is for
// candidates whose zones have been merged.
func (u *update) opposites() func(*candidate) money.Rate {
	fresh := map[place]money.Rate{}
	for c := range u.living() {
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

// discount refuses a spot price that is not below on-demand, and an on-demand price
// that is below spot. Where one source gives both, neither can be trusted.
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

// againstOld compares with the price that is held.
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

// outvoted reports whether more than half of the peers, and at least least of them,
// lie further than factor from r.
func outvoted(r money.Rate, peers []money.Rate, factor float64, least int) bool {
	off := 0
	for _, p := range peers {
		if apart(r, p, factor) {
			off++
		}
	}
	return off >= least && off*2 > len(peers)
}

// acrossRegions compares with the same thing in other regions of its cloud, of the
// update and of the book.
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
	for c := range u.living() {
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
