package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Schema names the document's form. Fields may be added under one name.
const Schema = "curfew.notification/v1"

// Document is what is posted. Its values are as they are known, not escaped for
// anything; Subject and Text are for people.
type Document struct {
	Schema string `json:"schema"`
	// ID is the same for every attempt to deliver one message.
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	// To is whom the recipient of the policy turned out to be.
	To       string    `json:"to"`
	Item     string    `json:"item,omitempty"`
	Resource *Resource `json:"resource"`
	Verb     string    `json:"verb,omitempty"`
	Because  string    `json:"because"`
	// ActsAt is the earliest time of the action; null where nothing will be done.
	ActsAt *time.Time `json:"acts_at"`
	// HourlyUSD is what the resource costs an hour, in cents; null where that is not
	// known.
	HourlyUSD *string `json:"hourly_usd"`
	// Keep is the command that exempts the resource, KeepTag the provider's own command
	// that writes the tag which does.
	Keep    string `json:"keep,omitempty"`
	KeepTag string `json:"keep_tag,omitempty"`
	// Lost is what is gone once it was carried out; Creator who made the resource, by the
	// provider's log, where no tag names an owner.
	Lost     string     `json:"lost,omitempty"`
	Creator  string     `json:"creator,omitempty"`
	Undo     string     `json:"undo,omitempty"`
	Know     string     `json:"know,omitempty"`
	Evidence []Evidence `json:"evidence"`
}

// Resource is what the message is about.
type Resource struct {
	ID      string          `json:"id"`
	Kind    string          `json:"kind"`
	Cloud   string          `json:"cloud"`
	Account string          `json:"account"`
	Region  string          `json:"region"`
	Name    string          `json:"name"`
	Type    string          `json:"type"`
	Owner   inventory.Owner `json:"owner"`
}

// Evidence is one thing that was seen. Window and coverage are absent for facts that
// are not sampled.
type Evidence struct {
	Signal   string `json:"signal"`
	Value    string `json:"value"`
	Window   string `json:"window,omitempty"`   // "14d"
	Coverage string `json:"coverage,omitempty"` // share of the window, rounded down: "0.99"
	Source   string `json:"source"`
}

func newDocument(m action.Message) Document {
	l := notify.Compose(m)
	d := Document{
		Schema: Schema, Kind: m.Kind, Subject: l.Subject, Text: l.Text(),
		To: m.To, Item: m.Item, Verb: string(m.Verb), Because: m.Because,
		Keep: m.Keep, KeepTag: m.KeepTag, Lost: m.Lost, Creator: m.Creator, Undo: m.Undo, Know: m.Know, Evidence: make([]Evidence, 0, len(m.Evidence)),
	}
	if !l.When.IsZero() {
		d.ActsAt = &l.When
	}
	if hourly, known := m.Hourly.Get(); known {
		cents := hourly.Cents()
		d.HourlyUSD = &cents
	}
	if r := m.Resource; r != nil {
		d.Resource = &Resource{ID: r.ID, Kind: string(r.Kind), Cloud: r.Cloud, Account: r.Account,
			Region: r.Region, Name: r.Name, Type: r.Type, Owner: r.Owner}
	}
	for _, e := range m.Evidence {
		d.Evidence = append(d.Evidence, newEvidence(e))
	}
	d.ID = d.identity()
	return d
}

func newEvidence(e usage.Evidence) Evidence {
	out := Evidence{Signal: e.Signal, Value: e.Value, Source: e.Source}
	if e.Window > 0 {
		out.Window = window(e.Window)
		if e.Coverage >= 0 {
			out.Coverage = strconv.FormatFloat(math.Floor(min(e.Coverage, 1)*100)/100, 'f', 2, 64)
		}
	}
	return out
}

// identity hashes all that the document says.
func (d Document) identity() string {
	var b strings.Builder
	// Marshaling strings, times and slices of them cannot fail.
	_ = json.NewEncoder(&b).Encode(d)
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}

// window writes a duration as documents hold it: "3h", "1d12h", "90s".
func window(d time.Duration) string {
	const day = 24 * time.Hour
	d = d.Round(time.Second)
	s := ""
	if d >= 2*day || d%day == 0 && d >= day {
		s, d = strconv.Itoa(int(d/day))+"d", d%day
		if d == 0 {
			return s
		}
	}
	t := d.String()
	if strings.HasSuffix(t, "m0s") {
		t = strings.TrimSuffix(t, "0s")
	}
	if strings.HasSuffix(t, "h0m") {
		t = strings.TrimSuffix(t, "0m")
	}
	return s + t
}
