package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/snapshot"
)

// The schemas of who may call the service.
const (
	TokensSchema   = "curfew.tokens/v1"
	TokenSchema    = "curfew.token/v1"
	NewTokenSchema = "curfew.token.new/v1"
	PeopleSchema   = "curfew.people/v1"
	LoginSchema    = "curfew.login/v1"
)

// Login is the output of `login` and `logout`: the token itself is not shown.
type Login struct {
	Schema string `json:"schema"`
	// Server is the URL of the service.
	Server string `json:"server"`
	// Name is the person or program that the token speaks for.
	Name string `json:"name"`
	// Roles are the caller's roles there.
	Roles []string `json:"roles"`
	// ExpiresAt is when it ends; null if that is unknown.
	ExpiresAt *time.Time `json:"expires_at"`
	// Link signs a browser in until ExpiresAt, once; only with --browser.
	Link string `json:"link,omitempty"`
}

// The schemas of what the service lists.
const (
	AccountsSchema  = "curfew.accounts/v1"
	ResourcesSchema = "curfew.resources/v1"
	FindingsSchema  = "curfew.findings/v1"
	HistorySchema   = "curfew.history/v1"
	ActionsSchema   = "curfew.actions/v1"
	ActionSchema    = "curfew.action/v1"
)

// Accounts are the accounts that were observed.
type Accounts struct {
	Schema   string    `json:"schema"`
	Accounts []Account `json:"accounts"`
}

// Account is one account.
type Account struct {
	// ID is the cloud and the account, such as aws/123456789012.
	ID      string `json:"id"`
	Cloud   string `json:"cloud"`
	Account string `json:"account"`
	// Regions were read.
	Regions []string `json:"regions"`
	// SeenAt is when it was observed last.
	SeenAt time.Time `json:"seen_at"`
}

// Fleet are the resources as they were seen last.
type Fleet struct {
	Schema    string     `json:"schema"`
	Resources []Observed `json:"resources"`
}

// Observed is one resource as it was seen last; what is unknown is null.
type Observed struct {
	// ID is the whole identity: cloud/account/region/kind/id.
	ID string `json:"id"`
	// Resource is the id that its provider gives it.
	Resource string `json:"resource"`
	Description
	// Duty is the current duty, since DutySince; null if it was not judged.
	Duty      *string    `json:"duty"`
	DutySince *time.Time `json:"duty_since"`
	// GPUs is the number of GPUs it has.
	GPUs *int `json:"gpus"`
	// Hourly is the list price of an hour.
	Hourly money.Dollars `json:"hourly_usd"`
	// Tags are its tags; null if they could not be read.
	Tags map[string]string `json:"tags"`
	// CreatedAt is when it was created.
	CreatedAt *time.Time `json:"created_at"`
	// StateSince is since when it is in its state.
	StateSince *time.Time `json:"state_since"`
	// FirstAt is when it was observed first.
	FirstAt time.Time `json:"first_at"`
	// SeenAt is when it was observed last.
	SeenAt time.Time `json:"seen_at"`
}

// NewObserved makes the document of a resource; the tags of the configuration say who owns it
// and what it is for.
func NewObserved(kept KeptResource, s snapshot.Resource, tags inventory.TagMapping) Observed {
	r := kept.Priced(tags).Resource
	d := Observed{
		ID: s.Ref.String(), Resource: r.ID, Description: describe(r), Duty: optionalText(s.Duty),
		DutySince: optionalTime(s.DutySince),
		GPUs:      kept.GPUs, Tags: kept.Tags, CreatedAt: optionalTime(r.CreatedAt),
		StateSince: optionalTime(r.StateSince),
		FirstAt:    s.FirstAt.UTC(), SeenAt: s.SeenAt.UTC()}
	if hourly, priced := kept.Hourly().Get(); priced {
		d.Hourly = money.Known(hourly)
	}
	return d
}

// History is how a resource changed, oldest first.
type History struct {
	Schema   string   `json:"schema"`
	Resource string   `json:"resource"`
	Changes  []Change `json:"changes"`
}

// Change begins an interval, which lasts until the next change of the same kind.
type Change struct {
	// At is when it was seen.
	At time.Time `json:"at"`
	// Since is from when on it held; null if that is unknown.
	Since *time.Time `json:"since"`
	// What names the changed field: "state" of the provider, or "duty".
	What  string `json:"what"`
	Value string `json:"value"`
}

// NewChange makes the document of a change.
func NewChange(c snapshot.Change) Change {
	return Change{At: c.At.UTC(), Since: optionalTime(c.Since), What: c.Aspect, Value: c.Value}
}

// Findings are the findings that hold.
type Findings struct {
	Schema   string         `json:"schema"`
	Findings []DatedFinding `json:"findings"`
}

// DatedFinding is a finding with the times at which it was seen.
type DatedFinding struct {
	Finding
	// FirstAt is when it was found first.
	FirstAt time.Time `json:"first_at"`
	// LastAt is when it was found last.
	LastAt time.Time `json:"last_at"`
}

// Actions are actions on resources, the newest first.
type Actions struct {
	Schema  string   `json:"schema"`
	Actions []Action `json:"actions"`
}

// OneAction is one action.
type OneAction struct {
	Schema string `json:"schema"`
	Action
}

// Action is one action on one resource, from its first round on the ladder to its end.
type Action struct {
	// ID is the argument of fix --undo.
	ID string `json:"id"`
	// Account is the cloud and the account.
	Account  string `json:"account"`
	Resource string `json:"resource"`
	// Source is the policy or finding that asks for it.
	Source string `json:"source"`
	Verb   string `json:"verb"`
	// Phase is where it stands on the safety ladder.
	Phase   string `json:"phase"`
	Because string `json:"because"`
	// FirstAt is since when the condition holds.
	FirstAt *time.Time `json:"first_at"`
	// WarnedAt is when the warning was accepted; null: it was not.
	WarnedAt *time.Time `json:"warned_at"`
	// Recipients were warned.
	Recipients []string `json:"recipients"`
	// GraceSeconds is how long nothing happens after the warning.
	GraceSeconds float64 `json:"grace_seconds"`
	// Alarm is the problem that a person must look at.
	Alarm     string     `json:"alarm,omitempty"`
	UpdatedAt *time.Time `json:"updated_at"`
}

// NewAction makes the document of an action.
func NewAction(it action.Item) Action {
	return Action{
		ID: it.ID, Account: it.Account, Resource: it.Ref.String(), Source: it.Source, Verb: string(it.Do.Verb),
		Phase: string(it.Phase), Because: it.Because,
		FirstAt: optionalTime(it.FirstAt), WarnedAt: optionalTime(it.WarnedAt),
		Recipients: append([]string{}, it.Recipients...), GraceSeconds: it.Grace.Seconds(),
		Alarm: it.Alarm, UpdatedAt: optionalTime(it.UpdatedAt)}
}

// Tokens is the output of `token list`.
type Tokens struct {
	Schema string  `json:"schema"`
	Tokens []Token `json:"tokens"`
}

// OneToken is the output of `token revoke`.
type OneToken struct {
	Schema string `json:"schema"`
	Token
}

// NewToken is the output of `token create`: the token and its secret, which is shown once.
type NewToken struct {
	Schema string `json:"schema"`
	Token
	// Secret is the token to send, "curfew_…"; only its SHA-256 is kept.
	Secret string `json:"secret"`
}

// Token is a token of the service without its secret.
type Token struct {
	// ID is the beginning of the token after its prefix.
	ID string `json:"id"`
	// Name is the person or program that it speaks for.
	Name string `json:"name"`
	// Roles are the most that it may do.
	Roles     []string `json:"roles"`
	CreatedBy string   `json:"created_by"`
	// CreatedAt is when it was created.
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is when it expires.
	ExpiresAt time.Time `json:"expires_at"`
	// UsedAt is when it was last used, to the minute; null: never.
	UsedAt *time.Time `json:"used_at"`
	// RevokedAt is when it was revoked; null: it is not.
	RevokedAt *time.Time `json:"revoked_at"`
	// State is valid, expired or revoked.
	State string `json:"state" enum:"valid,expired,revoked"`
}

// NewTokenDoc completes the document of a token at a time.
func NewTokenDoc(t Token, created, expires, used, revoked, now time.Time) Token {
	t.Roles = append([]string{}, t.Roles...)
	t.CreatedAt, t.ExpiresAt, t.UsedAt, t.RevokedAt = created.UTC(), expires.UTC(), optionalTime(used), optionalTime(
		revoked)
	switch {
	case t.RevokedAt != nil:
		t.State = "revoked"
	case !now.Before(expires):
		t.State = "expired"
	default:
		t.State = "valid"
	}
	return t
}

// People are those whom the configuration names.
type People struct {
	Schema string   `json:"schema"`
	People []Person `json:"people"`
	// Settings is the configuration that names them.
	Settings Decider `json:"settings"`
}

// Person is one of them, with the identities that lead to the name.
type Person struct {
	Name string `json:"name"`
	// Roles are those of approvers and people; approver@vision is one of the team vision.
	Roles  []string `json:"roles"`
	Mail   []string `json:"mail"`
	OIDC   []string `json:"oidc"`
	AWS    []string `json:"aws"`
	Slack  []string `json:"slack"`
	GitHub []string `json:"github"`
	Linux  []string `json:"linux"`
	// Tags are further values of owner tags.
	Tags []string `json:"tags"`
}
