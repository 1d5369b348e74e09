package mail

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/notify"
)

// compose makes a mail of text and HTML.
func compose(from, to string, m action.Message) (*mail.Msg, error) {
	l := notify.Compose(m)
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := msg.FromFormat("curfew", from); err != nil {
		return nil, fmt.Errorf("mail.from: %w", err)
	}
	if err := msg.To(to); err != nil {
		return nil, fmt.Errorf("address %q: %w", to, err)
	}
	// A name that looks like an encoded word (RFC 2047) would be read as one.
	msg.Subject(strings.ReplaceAll(l.Subject, "=?", "= ?"))
	// No automatic answers (RFC 3834, 5).
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	_, domain, _ := strings.Cut(from, "@")
	if m.Item == "" {
		msg.SetMessageIDWithValue(messageID(domain, "notice", rand.Text()))
	} else {
		thread := "<" + messageID(domain, "item", m.Item) + ">"
		msg.SetMessageIDWithValue(messageID(domain, cmp.Or(m.Kind, "message"), m.Item,
			strconv.FormatInt(m.ActsAt.Unix(), 10), m.Because))
		msg.SetGenHeader(mail.HeaderInReplyTo, thread)
		msg.SetGenHeader(mail.HeaderReferences, thread)
	}
	var html strings.Builder
	if err := page(l).Render(context.Background(), &html); err != nil {
		return nil, fmt.Errorf("lay the mail out: %w", err)
	}
	msg.SetBodyString(mail.TypeTextPlain, l.Text())
	msg.AddAlternativeString(mail.TypeTextHTML, html.String())
	return msg, nil
}

// messageID names a message by what it says. The same message is the same mail,
// however often it is sent; all of an item share a thread.
func messageID(domain, kind string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{kind}, parts...), "\x00")))
	word := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, kind)
	return "curfew." + word + "." + hex.EncodeToString(sum[:16]) + "@" + domain
}
