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
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Schema names the document's form. Fields may be added under one name.
const Schema = "curfew.notification/v1"

// Document is the posted document. Its values are as they are known, not escaped for anything;
// Subject and Text are for people.
type Document struct {
	Schema string `json:"schema"`
	// ID is the same for every attempt to deliver one message.
	ID string `json:"id"`
	// Kind is warning, acted, alarm, notice or approval.
	Kind string `json:"kind"`
	// Subject is the message in one line.
	Subject string `json:"subject"`
	// Text is the whole message.
	Text string `json:"text"`
	// To is whom the recipient of the policy turned out to be.
	To string `json:"to"`
	// Item is the id of the action or request.
	Item string `json:"item,omitempty"`
	// Resource is the subject of the message; null if it has none.
	Resource *Resource `json:"resource"`
	// Verb is the action: stop, terminate, tag and so on.
	Verb string `json:"verb,omitempty"`
	// Because is the reason, in words.
	Because string `json:"because"`
	// ActsAt is the earliest time of the action; null if nothing will be done.
	ActsAt *time.Time `json:"acts_at"`
	// HourlyUSD is the hourly cost of the resource; null if unknown.
	HourlyUSD money.Dollars `json:"hourly_usd"`
	// Keep is the command that exempts the resource.
	Keep string `json:"keep,omitempty"`
	// KeepTag is the provider's own command that exempts it by a tag.
	KeepTag string `json:"keep_tag,omitempty"`
	// Lost names the data that the action deletes.
	Lost string `json:"lost,omitempty"`
	// Creator is the creator by the provider's log, where no tag names an owner.
	Creator string `json:"creator,omitempty"`
	// Undo is the command that takes the action back.
	Undo string `json:"undo,omitempty"`
	// Know is a further remark.
	Know string `json:"know,omitempty"`
	// Evidence are the measurements.
	Evidence []Evidence `json:"evidence"`
}

// Resource is the subject of a message.
type Resource struct {
	// ID is the id that the provider gave it.
	ID string `json:"id"`
	// Kind is its kind, such as instance.
	Kind string `json:"kind"`
	// Cloud is its cloud.
	Cloud string `json:"cloud"`
	// Account is its account.
	Account string `json:"account"`
	// Region is its region.
	Region string `json:"region"`
	// Name is its name.
	Name string `json:"name"`
	// Type is its machine type.
	Type string `json:"type"`
	// Owner is its owner, by its tags.
	Owner inventory.Owner `json:"owner"`
}

// Evidence is one thing that was seen. Window and coverage are absent for facts that
// are not sampled.
type Evidence struct {
	// Signal is the name of what was measured.
	Signal string `json:"signal"`
	// Value is its value.
	Value    string `json:"value"`
	Window   string `json:"window,omitempty"`   // time that was looked at: "14d"
	Coverage string `json:"coverage,omitempty"` // share of the window, rounded down: "0.99"
	// Source is where it was measured.
	Source string `json:"source"`
}

func newDocument(m action.Message) Document {
	l := notify.Compose(m)
	d := Document{
		Schema: Schema, Kind: m.Kind, Subject: l.Subject, Text: l.Text(),
		To: m.To, Item: m.Item, Verb: string(m.Verb), Because: m.Because,
		Keep: m.Keep, KeepTag: m.KeepTag, Lost: m.Lost, Creator: m.Creator, Undo: m.Undo, Know: m.Know,
		Evidence: make([]Evidence, 0, len(m.Evidence)),
	}
	if !l.When.IsZero() {
		d.ActsAt = &l.When
	}
	if hourly, known := m.Hourly.Get(); known {
		d.HourlyUSD = money.Known(hourly)
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
