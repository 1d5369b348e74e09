package view

import "time"

// The schemas of who may call the service.
const (
	TokensSchema   = "curfew.tokens/v1"
	TokenSchema    = "curfew.token/v1"
	NewTokenSchema = "curfew.token.new/v1"
	PeopleSchema   = "curfew.people/v1"
	ActionsSchema  = "curfew.actions/v1"
)

// Tokens is what `token list` prints.
type Tokens struct {
	Schema string  `json:"schema"`
	Tokens []Token `json:"tokens"`
}

// OneToken is what `token revoke` prints.
type OneToken struct {
	Schema string `json:"schema"`
	Token
}

// NewToken is what `token create` prints: the token and its secret, which is shown once.
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
	t.CreatedAt, t.ExpiresAt, t.UsedAt, t.RevokedAt = created.UTC(), expires.UTC(), optionalTime(used), optionalTime(revoked)
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
