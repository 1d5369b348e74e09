package action

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	// claimFor is for how long a notice belongs to the process that delivers it: longer than
	// a delivery takes, so that only a process that died leaves one to others.
	claimFor = 2 * patience
	// retryFirst and retryMost bound the pause before a notice that no channel accepted is
	// tried again. It doubles with each attempt.
	retryFirst = time.Minute
	retryMost  = time.Hour
	// abandonAfter is when a notice that no channel accepts is given up.
	abandonAfter = 7 * 24 * time.Hour
	// maxRefusals is after how many failed deliveries a round leaves the others to the next
	// one, because a channel that does not answer would hold up its actions.
	maxRefusals = 3
)

// The recipients that a resource decides: its owner, and the owner's team.
const (
	recipientOwner = "owner"
	recipientTeam  = "team"
)

// The kinds of notices.
const (
	noticeActed = "acted" // the provider confirmed the action
	noticeAlarm = "alarm" // a call failed, is not confirmed, or was given up
)

// Briefing is the content of a notice apart from the outcome. It is written with
// the action's intent: the process that confirms the last call may have started after the
// resource was gone, and know neither its owner nor its policy.
type Briefing struct {
	// Recipients are the policy's recipients: "owner", "team", or configured names.
	Recipients       []string
	Name, Type, Zone string
	// Tags are the resource's; nil where they could not be read.
	Tags    map[string]string
	Owner   inventory.Owner
	Because string
	// Hourly is the list price of an hour of the resource; nil if unknown.
	Hourly           *money.Amount
	Undo, Know, Lost string
	Keep, KeepTag    string
	Evidence         []usage.Evidence
}

// Notice is a message that people are owed. It is written in one transaction with the change
// that it is about, and delivered once by whichever process comes first: twice at most, where
// a process dies between the channel's acceptance and its record.
type Notice struct {
	// ID joins the ids of the item, of its version with which the notice was written, and of the
	// recipient.
	ID      string
	Account string
	Item    string
	// Ref is the resource that it is about; zero: none.
	Ref       inventory.Ref
	Verb      policy.Verb
	Kind      string
	Recipient string
	// Alarm is the failure; empty if the action was confirmed.
	Alarm     string
	Briefing  Briefing
	CreatedAt time.Time
	// Attempts are the deliveries that began, and DueAt is when the next one may begin.
	Attempts int
	DueAt    time.Time
	// ClosedAt is when a channel accepted it, or when it was given up; zero while it is owed.
	ClosedAt   time.Time
	AcceptedBy string
	// Error is why the newest delivery failed.
	Error string
}

// Message returns the notice as channels deliver it.
func (n Notice) Message() Message {
	b := n.Briefing
	m := Message{
		Kind: n.Kind, To: n.Recipient, Item: n.Item, Verb: n.Verb, Because: b.Because, Evidence: b.Evidence,
		Undo: b.Undo, Know: b.Know, Lost: b.Lost, Keep: b.Keep, KeepTag: b.KeepTag,
	}
	if n.Ref != (inventory.Ref{}) {
		m.Resource = &inventory.Resource{
			Cloud: n.Ref.Cloud, Account: n.Ref.Account, Region: n.Ref.Region, Kind: n.Ref.Kind, ID: n.Ref.ID,
			Name: b.Name, Type: b.Type, Zone: b.Zone, Tags: b.Tags, Owner: b.Owner,
		}
	}
	if b.Hourly != nil {
		m.Hourly = inventory.Known(*b.Hourly)
	}
	if n.Alarm != "" {
		m.Because = n.Alarm
	}
	return m
}

// Kept returns the notice as every store keeps it, and shares nothing with it. One without an
// id, or a time at which it is due, is refused.
func (n Notice) Kept() (Notice, error) {
	switch {
	case n.ID == "":
		return n, errors.New("a notice without an id")
	case n.DueAt.IsZero():
		return n, fmt.Errorf("notice %s is never due", n.ID)
	}
	n.Briefing = n.Briefing.clone()
	n.Alarm, n.Error = storable(n.Alarm), storable(n.Error)
	n.CreatedAt, n.DueAt, n.ClosedAt = instant(n.CreatedAt), instant(n.DueAt), instant(n.ClosedAt)
	return n, nil
}

// clone returns the briefing as stores keep it, with slices and maps of its own.
func (b Briefing) clone() Briefing {
	b.Because = storable(b.Because)
	b.Recipients, b.Tags, b.Evidence = slices.Clone(b.Recipients), maps.Clone(b.Tags), slices.Clone(b.Evidence)
	for i := range b.Evidence {
		e := &b.Evidence[i]
		if e.Value = storable(e.Value); math.IsNaN(e.Coverage) || math.IsInf(e.Coverage, 0) {
			e.Coverage = usage.NoCoverage // JSON has no such numbers
		}
	}
	if b.Hourly != nil {
		hourly := *b.Hourly
		b.Hourly = &hourly
	}
	return b
}

// briefing returns what will be told about an item's action.
func (s *pass) briefing(it Item, p Proposal) *Briefing {
	m, r := s.message("", it, p), p.Resource
	b := Briefing{
		Recipients: orOwner(p.Notify), Name: r.Name, Type: r.Type, Zone: r.Zone, Tags: r.Tags,
		Owner: r.Owner, Because: m.Because,
		Undo: m.Undo, Know: m.Know, Lost: m.Lost, Keep: m.Keep, KeepTag: m.KeepTag, Evidence: m.Evidence,
	}
	if hourly, known := p.Hourly.Get(); known {
		b.Hourly = &hourly
	}
	return &b
}

// notices returns what people are owed once the item is saved as it is.
func (s *pass) notices(kind string, it Item, p *Proposal) []Notice {
	// A person who writes tags sees what became of them; others are told only of what went wrong.
	if it.Do.Verb == policy.Tag && (kind == noticeActed || byPerson(it.Source)) {
		return nil
	}
	b := it.Briefing
	switch {
	case b != nil:
	case p != nil:
		b = s.briefing(it, *p)
	default: // its intent is of a version that kept none
		b = &Briefing{Because: it.Because}
	}
	var out []Notice
	for _, to := range orOwner(b.Recipients) {
		n := Notice{
			ID: fmt.Sprintf("%s-%d-%s", it.ID, it.Version+1, to), Account: it.Account, Item: it.ID, Ref: it.Ref,
			Verb: it.Do.Verb, Kind: kind, Recipient: to, Briefing: *b,
			CreatedAt: s.Clock().Wall, DueAt: s.Clock().Wall,
		}
		if kind == noticeAlarm {
			n.Alarm = it.Alarm
		}
		if !slices.ContainsFunc(out, func(o Notice) bool { return o.ID == n.ID }) {
			out = append(out, n)
		}
	}
	return out
}

// saveOwing writes an item with its entries and with what people are told of it.
func (s *pass) saveOwing(ctx context.Context, kind string, it Item, p *Proposal, entries ...Entry) (Item, error) {
	it = s.stamp(it)
	saved, err := s.Store.SaveOwing(ctx, it, s.notices(kind, it, p), entries...)
	if err != nil {
		return it, fmt.Errorf("save the item of %s: %w", it.Ref.ID, err)
	}
	if s.owing = true; s.Log != nil && kind == noticeAlarm {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "alarm", slog.String("operation", "act"),
			slog.String("account", it.Account),
			slog.String("item", it.ID), slog.String("verb", string(it.Do.Verb)),
			slog.String("resource", it.Ref.String()),
			slog.String("why", it.Alarm))
	}
	return saved, nil
}

// deliver sends what people of the account are owed by now, also by other processes. Nothing
// depends on it: what cannot be delivered stays owed.
func (s *pass) deliver(ctx context.Context) {
	if s.owing = false; !s.Enforce || ctx.Err() != nil {
		return
	}
	for s.refusals < maxRefusals {
		now := s.Clock().Wall
		n, err := s.Store.ClaimNotice(ctx, s.Account, now, now.Add(claimFor))
		if err == nil && n == nil {
			return
		}
		if err == nil {
			err = s.settleNotice(ctx, *n, s.send(ctx, n))
		}
		if err != nil {
			if s.Log != nil {
				s.Log.LogAttrs(ctx, slog.LevelWarn, "notices wait for the next pass",
					slog.String("account", s.Account),
					slog.String("why", Redact(err.Error())))
			}
			return
		}
	}
}

// send delivers a notice and notes who accepted it.
func (s *pass) send(ctx context.Context, n *Notice) (err error) {
	if n.AcceptedBy, err = s.notify(ctx, n.Recipient, n.Message()); err == nil && n.AcceptedBy == "" {
		return errUnnamed
	}
	return err
}

// settleNotice records what a delivery came to. The context of the round may have ended since.
func (s *pass) settleNotice(ctx context.Context, n Notice, failure error) error {
	now := s.Clock().Wall
	e := Entry{At: now, Account: n.Account, Round: s.r.Number, Actor: "curfew", Resource: n.Ref.String(),
		Item: n.Item, Verb: string(n.Verb), Because: n.Message().Because}
	switch {
	case failure == nil:
		n.ClosedAt, n.Error = now, ""
		e.What, e.Outcome = EventNotified, n.Kind+": accepted by "+n.AcceptedBy
		return s.Store.PutNotice(context.WithoutCancel(ctx), n, e)
	case now.Sub(n.CreatedAt) >= abandonAfter:
		n.ClosedAt, n.Error = now, Redact(failure.Error())
		e.What, e.Outcome = EventUnnotified, n.Kind+": "+n.Error
		return s.Store.PutNotice(context.WithoutCancel(ctx), n, e)
	}
	s.refusals++
	n.Error = Redact(failure.Error())
	n.DueAt = now.Add(min(retryMost, retryFirst<<min(n.Attempts-1, 10)))
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "notification failed", slog.String("operation", "notify"),
			slog.String("account", n.Account),
			slog.String("item", n.Item), slog.String("kind", n.Kind), slog.Int("attempt", n.Attempts),
			slog.String("why", n.Error))
	}
	return s.Store.PutNotice(context.WithoutCancel(ctx), n)
}
