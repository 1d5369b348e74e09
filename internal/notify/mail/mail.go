// Package mail delivers messages by SMTP.
package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/notify"
)

// Channel hands mail to one server. Every message is a conversation of its own.
type Channel struct {
	host     string
	implicit bool // TLS from the first byte on
	from     string
	options  []mail.Option
	secrets  notify.Secrets
}

// Open is the notify.Opener of the section mail.
func Open(c notify.Config, lookup notify.Lookup) (string, notify.Channel, error) {
	if !c.Mail.Used() {
		return notify.MailChannel, nil, nil
	}
	ch, err := open(c.Mail, lookup)
	if err != nil {
		return notify.MailChannel, nil, err
	}
	return notify.MailChannel, ch, nil
}

func open(m notify.Mail, lookup notify.Lookup) (*Channel, error) {
	host, p, err := net.SplitHostPort(m.SMTP)
	if err != nil {
		return nil, &notify.FieldError{Path: "mail.smtp", Message: err.Error()}
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		return nil, &notify.FieldError{Path: "mail.smtp", Message: err.Error()}
	}
	c := &Channel{host: host, from: m.From, implicit: m.TLS == "tls"}
	c.options = []mail.Option{
		mail.WithPort(port), mail.WithTLSPolicy(mail.TLSMandatory), mail.WithoutNoop(), mail.WithoutRset(),
	}
	switch m.TLS {
	case "tls":
		c.options = append(c.options, mail.WithSSL())
	case "none":
		c.options = append(c.options, mail.WithTLSPolicy(mail.NoTLS))
	}
	if m.Username != "" {
		password, err := notify.Secret("mail.password", m.PasswordEnv, m.PasswordFile, lookup)
		if err != nil {
			return nil, err
		}
		// AUTH PLAIN sends both in one (RFC 4616).
		c.secrets = notify.Secrets{password, "\x00" + m.Username + "\x00" + password}
		c.options = append(c.options, mail.WithUsername(m.Username), mail.WithPassword(password),
			mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthPlain, mail.SMTPAuthLogin))
	}
	return c, nil
}

// Send hands a mail to the server. It is accepted once the server has answered the
// end of the data with 250, whatever becomes of the conversation then.
func (c *Channel) Send(ctx context.Context, to string, m action.Message) error {
	msg, err := compose(c.from, to, m)
	if err != nil {
		return &notify.Failure{Why: c.secrets.Clean(err.Error())}
	}
	line := &line{ctx: ctx, channel: c}
	defer line.hangUp()
	client, err := mail.NewClient(c.host, append([]mail.Option{mail.WithDialContextFunc(line.dial)}, c.options...)...)
	if err != nil {
		return &notify.Failure{Why: c.secrets.Clean(err.Error())}
	}
	conversation, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return c.failure(ctx, err)
	}
	err = client.SendWithSMTPClient(conversation, msg)
	if !msg.IsDelivered() {
		return c.failure(ctx, err)
	}
	// A farewell that goes wrong takes nothing back.
	_ = client.CloseWithSMTPClient(conversation)
	return nil
}

// line is the connection of one conversation. The client knows the context only
// while it dials; here the end of the context ends the connection.
type line struct {
	ctx     context.Context
	channel *Channel
	conn    net.Conn
	stop    func() bool
}

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.conn, l.stop = conn, context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	if !l.channel.implicit {
		return conn, nil
	}
	secured := tls.Client(conn, &tls.Config{ServerName: l.channel.host, MinVersion: tls.VersionTLS12})
	return secured, secured.HandshakeContext(ctx)
}

func (l *line) hangUp() {
	if l.conn != nil {
		l.stop()
		_ = l.conn.Close()
	}
}

// failure explains why a mail was not accepted. 4yz is temporary, 5yz final (RFC 5321, 4.2.1), and
// a conversation that breaks off is temporary.
func (c *Channel) failure(ctx context.Context, err error) error {
	var (
		sending *mail.SendError
		reply   *textproto.Error
		code    int
		why     string
	)
	switch {
	case ctx.Err() != nil:
		return c.secrets.Unreachable(ctx, err)
	case errors.As(err, &sending):
		code = sending.ErrorCode()
		why, _, _ = strings.Cut(sending.Error(), ", affected ")
		if code == 0 && sending.Reason != mail.ErrGetSender && sending.Reason != mail.ErrGetRcpts &&
			sending.Reason != mail.ErrNoUnencoded {
			return &notify.Failure{Why: c.secrets.Clean("the connection broke off: " + why), Temporary: true}
		}
	case errors.As(err, &reply):
		code, why = reply.Code, reply.Error()
	default:
		return c.secrets.Unreachable(ctx, err)
	}
	switch code {
	case 530, 534, 535, 538: // RFC 4954, 6
		// The words are left out: they may repeat what was sent.
		why = fmt.Sprintf("answered %d: the server refuses the user name, the password, or how they are sent", code)
	}
	return &notify.Failure{Why: c.secrets.Clean(why), Temporary: code/100 == 4}
}
