package notify

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Address is where a recipient is reached: a channel's name and what it delivers to
// there, which is empty for the webhook.
type Address struct {
	Channel, To string
}

// String returns what [ParseAddress] reads: "slack:#vision", "webhook".
func (a Address) String() string {
	if a.To == "" {
		return a.Channel
	}
	return a.Channel + ":" + a.To
}

var (
	// slackAddress is a conversation: its name, at most 80 characters, or an id.
	slackAddress = lazyregexp.New(`^(#[\p{L}\p{N}_-]{1,80}|[CDGUW][A-Z0-9]{2,30})$`)
	slackMember  = lazyregexp.New(`^[UW][A-Z0-9]{2,30}$`)
	// mailAddress is a Dot-string at a Domain (RFC 5321, 4.1.2): no quoting, no
	// comment, no display name, nothing that a header could be broken with.
	mailAddress = lazyregexp.New(`^[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+)*` +
		`@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+$`)
)

// ParseAddress reads "slack:#oncall", "slack:U012AB3CD", "mail:oncall@example.com"
// or "webhook".
func ParseAddress(s string) (Address, error) {
	channel, to, _ := strings.Cut(s, ":")
	switch {
	case s == WebhookChannel,
		channel == SlackChannel && slackAddress.MatchString(to),
		channel == MailChannel && isMailAddress(to):
		return Address{Channel: channel, To: to}, nil
	}
	return Address{}, fmt.Errorf("%q is none of slack:#channel, slack:ID, mail:user@example.com and webhook", s)
}

// isMailAddress bounds the form by the lengths of RFC 5321, 4.5.3.1.
func isMailAddress(s string) bool {
	return len(s) <= 254 && strings.IndexByte(s, '@') <= 64 && mailAddress.MatchString(s)
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// user returns the addresses of a person, as the tag names them, in the order in
// which they are tried.
func (c Config) user(name string) []Address {
	var out []Address
	local, domain, isAddress := strings.Cut(name, "@")
	ours := isAddress && isMailAddress(name) && strings.EqualFold(domain, c.Mail.Domain)
	id, ok := find(c.Slack.Users, name)
	if !ok && ours {
		id, ok = find(c.Slack.Users, local)
	}
	if ok {
		out = append(out, Address{SlackChannel, id})
	}
	if !c.Mail.Used() {
		return out
	}
	to, ok := find(c.Mail.Users, name)
	switch {
	case ok:
	case isAddress && (ours || c.Mail.Domain == ""):
		to = name
	case !isAddress && c.Mail.Domain != "":
		to = name + "@" + c.Mail.Domain
	}
	if isMailAddress(to) {
		out = append(out, Address{MailChannel, to})
	}
	return out
}

// team returns the addresses of a team in the order in which they are tried.
func (c Config) team(name string) []Address {
	var out []Address
	if to, ok := find(c.Slack.Teams, name); ok {
		out = append(out, Address{SlackChannel, to})
	}
	if to, ok := find(c.Mail.Teams, name); ok {
		out = append(out, Address{MailChannel, to})
	}
	return out
}
