package notify

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Config is the section notify of curfew.yaml: which channels there are, and who is
// reached by which. It names secrets and never holds one. The zero Config reaches
// no recipient.
type Config struct {
	// Slack is a workspace, written to with the token of an app that may chat:write.
	Slack Slack `yaml:"slack"`
	// Mail is a server that takes mail by SMTP.
	Mail Mail `yaml:"mail"`
	// Webhook is an address that takes signed JSON.
	Webhook Webhook `yaml:"webhook"`
	// Names are recipients of policies and where each is reached, in the order they
	// are tried: "slack:#oncall", "mail:oncall@example.com", "webhook".
	Names map[string][]string `yaml:"names"`
	// Accounts are the people responsible for the resources of an account where no user, team or
	// creator is reached. Warnings go there too, and grace runs from then on.
	Accounts map[string][]string `yaml:"accounts"`
	// Unowned are the people responsible for every other resource where no user, team or creator is
	// reached.
	Unowned []string `yaml:"unowned"`
}

// Slack is a workspace, written to with the token of an app that may chat:write.
type Slack struct {
	// TokenEnv is the environment variable that holds the token.
	TokenEnv string `yaml:"token_env"`
	// TokenFile is the file that holds the token.
	TokenFile string `yaml:"token_file"`
	// DefaultChannel is the channel of messages that are no warnings and have no other
	// recipient.
	DefaultChannel string `yaml:"default_channel"`
	// DefaultOwns reports whether the default channel answers for resources without another
	// recipient, and takes warnings too.
	DefaultOwns bool `yaml:"default_owns"`
	// Teams are the channels of teams: {vision: "#vision"}.
	Teams map[string]string `yaml:"teams"`
	// Users are the member ids of people: {ana: U012AB3CD}.
	Users map[string]string `yaml:"users"`
	// BaseURL is where the Web API is; empty is Slack's own.
	BaseURL string `yaml:"base_url"`
}

// Mail is a server that takes mail by SMTP.
type Mail struct {
	// SMTP is the server, host:port.
	SMTP string `yaml:"smtp"`
	// From is the address of the sender.
	From string `yaml:"from"`
	// Domain is the domain of user names without one; mail to addresses from tags stays
	// within it. Empty derives no address.
	Domain string `yaml:"domain"`
	// Username is the name to sign in with; empty is no AUTH.
	Username string `yaml:"username"`
	// PasswordEnv is the environment variable that holds the password.
	PasswordEnv string `yaml:"password_env"`
	// PasswordFile is the file that holds the password.
	PasswordFile string `yaml:"password_file"`
	// TLS is starttls (the default, and then mandatory), tls from the first byte on, or
	// none.
	TLS string `yaml:"tls" enum:"starttls,tls,none"`
	// Teams are the addresses of teams.
	Teams map[string]string `yaml:"teams"`
	// Users are the addresses of people.
	Users map[string]string `yaml:"users"`
}

// Webhook is an address that takes signed JSON.
type Webhook struct {
	// URL is the address; one that holds a secret belongs into URLEnv or URLFile.
	URL string `yaml:"url"`
	// URLEnv is the environment variable that holds the address.
	URLEnv string `yaml:"url_env"`
	// URLFile is the file that holds the address.
	URLFile string `yaml:"url_file"`
	// SecretEnv is the environment variable that holds the key of the signature.
	SecretEnv string `yaml:"secret_env"`
	// SecretFile is the file that holds the key of the signature.
	SecretFile string `yaml:"secret_file"`
	// HeadersEnv are further headers, each with the variable that holds its value.
	HeadersEnv map[string]string `yaml:"headers_env"`
}

// Names of the channels, which begin their addresses.
const (
	SlackChannel   = "slack"
	MailChannel    = "mail"
	WebhookChannel = "webhook"
)

// Used reports whether the section is there.
func (s Slack) Used() bool { return !reflect.ValueOf(s).IsZero() }

// Used reports whether the section is present.
func (m Mail) Used() bool { return !reflect.ValueOf(m).IsZero() }

// Used reports whether the section is present.
func (w Webhook) Used() bool { return !reflect.ValueOf(w).IsZero() }

// Lookup reads an environment variable.
type Lookup = func(name string) (value string, ok bool)

// FieldError is a mistake in the configuration.
type FieldError struct {
	// Path is the key below notify: "slack.token_env".
	Path    string
	Message string
}

// Error returns "slack.token_env: message".
func (e *FieldError) Error() string { return e.Path + ": " + e.Message }

func fieldError(path, format string, args ...any) error {
	return &FieldError{Path: path, Message: fmt.Sprintf(format, args...)}
}

// Validate returns the first mistake as a *FieldError. It reads neither the
// environment nor files.
func (c Config) Validate() error {
	for _, check := range []func() error{
		c.Slack.validate, c.Mail.validate, c.Webhook.validate, c.validateNames, c.validateUnowned,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// CheckPerson returns an error for wrong member ids or addresses of a person.
func CheckPerson(slack, mail []string) error {
	for _, id := range slack {
		if !slackMember.MatchString(id) {
			return fmt.Errorf("%q is no member id of Slack such as U012AB3CD", id)
		}
	}
	for _, to := range mail {
		if !isMailAddress(to) {
			return fmt.Errorf("%q is no mail address", to)
		}
	}
	return nil
}

func (s Slack) validate() error {
	if !s.Used() {
		return nil
	}
	if err := secretNamed("slack.token", s.TokenEnv, s.TokenFile); err != nil {
		return err
	}
	if s.DefaultChannel != "" && !slackAddress.MatchString(s.DefaultChannel) {
		return fieldError("slack.default_channel", "%q is neither a channel (%q) nor an id",
			s.DefaultChannel, "#ml-cost")
	}
	if s.DefaultOwns && s.DefaultChannel == "" {
		return fieldError("slack.default_owns", "needs a default_channel (quote it: # begins a comment)")
	}
	if err := people("slack.teams", s.Teams, slackAddress,
		`a channel (quote it: "#vision", # begins a comment) or its id`); err != nil {
		return err
	}
	if err := people("slack.users", s.Users, slackMember, "a member id such as U012AB3CD"); err != nil {
		return err
	}
	if s.BaseURL != "" {
		if _, err := ParseURL(s.BaseURL); err != nil {
			return fieldError("slack.base_url", "%s", err)
		}
	}
	return nil
}

func (m Mail) validate() error {
	if !m.Used() {
		return nil
	}
	if host, port, err := net.SplitHostPort(m.SMTP); err != nil || host == "" || !isPort(port) {
		return fieldError("mail.smtp", "%q is not host:port, such as smtp.example.com:587", m.SMTP)
	}
	if !isMailAddress(m.From) {
		return fieldError("mail.from", "%q is not a mail address", m.From)
	}
	if m.Domain != "" && !isMailAddress("user@"+m.Domain) {
		return fieldError("mail.domain", "%q is not a domain such as example.com", m.Domain)
	}
	switch m.TLS {
	case "", "starttls", "tls":
	case "none":
		if m.Username != "" {
			return fieldError("mail.tls",
				"none would send the password of %s in the clear; use starttls or tls", m.Username)
		}
	default:
		return fieldError("mail.tls", "%q is none of starttls, tls and none", m.TLS)
	}
	if m.Username != "" || m.PasswordEnv != "" || m.PasswordFile != "" {
		if m.Username == "" {
			return fieldError("mail.username", "is missing, but there is a password")
		}
		if err := secretNamed("mail.password", m.PasswordEnv, m.PasswordFile); err != nil {
			return err
		}
	}
	if err := people("mail.teams", m.Teams, mailAddress, "a mail address"); err != nil {
		return err
	}
	return people("mail.users", m.Users, mailAddress, "a mail address")
}

func (w Webhook) validate() error {
	if !w.Used() {
		return nil
	}
	if w.URL != "" {
		if w.URLEnv != "" || w.URLFile != "" {
			return fieldError("webhook.url", "is given twice: by url and by url_env or url_file")
		}
		if _, err := ParseURL(w.URL); err != nil {
			return fieldError("webhook.url", "%s", err)
		}
	} else if err := secretNamed("webhook.url", w.URLEnv, w.URLFile); err != nil {
		return err
	}
	if err := secretNamed("webhook.secret", w.SecretEnv, w.SecretFile); err != nil {
		return err
	}
	for _, h := range slices.Sorted(maps.Keys(w.HeadersEnv)) {
		if !headerName.MatchString(h) {
			return fieldError("webhook.headers_env", "%q is not the name of a header", h)
		}
		if reservedHeader.MatchString(h) {
			return fieldError("webhook.headers_env", "%s is curfew's own to set", h)
		}
		if !variable.MatchString(w.HeadersEnv[h]) {
			return fieldError("webhook.headers_env", "%s wants the name of an environment variable, not a value", h)
		}
	}
	return nil
}

func (c Config) validateNames() error {
	for _, name := range slices.Sorted(maps.Keys(c.Names)) {
		if name == Owner || name == Team || plain.Line(name) != name || name == "" {
			return fieldError("names",
				"%q cannot be a name: owner and team have their own meaning, and a name is one line",
				name)
		}
		if err := c.validateAddresses(c.Names[name]); err != nil {
			return fieldError("names", "%q %s", name, err)
		}
	}
	return nil
}

func (c Config) validateUnowned() error {
	for _, account := range slices.Sorted(maps.Keys(c.Accounts)) {
		if account == "" || plain.Line(account) != account {
			return fieldError("accounts", "%q cannot be an account", account)
		}
		if err := c.validateAddresses(c.Accounts[account]); err != nil {
			return fieldError("accounts", "%q %s", account, err)
		}
	}
	if c.Unowned != nil {
		if err := c.validateAddresses(c.Unowned); err != nil {
			return fieldError("unowned", "%s", err)
		}
	}
	return nil
}

// validateAddresses refuses a list without addresses.
func (c Config) validateAddresses(list []string) error {
	if len(list) == 0 {
		return fmt.Errorf("has no addresses; list some, such as %q", "slack:#oncall")
	}
	used := map[string]bool{SlackChannel: c.Slack.Used(), MailChannel: c.Mail.Used(), WebhookChannel: c.Webhook.Used()}
	for _, s := range list {
		a, err := ParseAddress(s)
		if err != nil {
			return fmt.Errorf("has a mistake: %w", err)
		}
		if !used[a.Channel] {
			return fmt.Errorf("has %q, which needs the section notify.%s", s, a.Channel)
		}
	}
	return nil
}

var (
	// variable is the portable form of a variable's name (POSIX.1-2024, 8.1).
	variable       = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerName     = lazyregexp.New(`^[A-Za-z0-9-]+$`)
	reservedHeader = lazyregexp.New(
		`(?i)^(curfew-.*|content-(type|length)|host|connection|transfer-encoding|user-agent)$`)
)

func secretNamed(path, env, file string) error {
	switch {
	case env == "" && file == "":
		return fieldError(path+"_env", "is missing: name the environment variable that holds it (or %s_file a file)",
			path)
	case env != "" && file != "":
		return fieldError(path+"_env", "is given together with %s_file; one of them is enough", path)
	case env != "" && !variable.MatchString(env):
		// The value is not repeated: it may be the secret itself.
		return fieldError(path+"_env",
			"is not the name of an environment variable; a secret itself does not belong here")
	}
	return nil
}

// Secret reads the secret that the keys path_env and path_file name, without the
// white space around it. One that is absent, empty or of several lines is a
// *FieldError, which never holds it.
func Secret(path, env, file string, lookup Lookup) (string, error) {
	if err := secretNamed(path, env, file); err != nil {
		return "", err
	}
	field, where, secret := path+"_env", "the environment variable "+env, ""
	if env != "" {
		v, ok := lookup(env)
		if !ok {
			return "", fieldError(field, "%s is not set", where)
		}
		secret = v
	} else {
		field, where = path+"_file", file
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fieldError(field, "%s", err)
		}
		secret = string(b)
	}
	secret = strings.TrimSpace(secret)
	if secret == "" || strings.ContainsFunc(secret, unicode.IsControl) {
		return "", fieldError(field, "%s does not hold a secret of one line", where)
	}
	return secret, nil
}

// ParseURL reads the address of a server: https, or http on this machine, so that
// nothing secret crosses a network in the clear. Errors do not repeat it.
func ParseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return nil, fmt.Errorf("is not a URL such as https://hooks.example.com/curfew")
	}
	ip := net.ParseIP(u.Hostname())
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("holds a user name; give credentials in a header or in the environment")
	case u.Scheme == "https":
	case u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()):
	default:
		return nil, fmt.Errorf("must begin with https:// (http:// only to this machine)")
	}
	return u, nil
}

// people refuses a mapping with an address of another form, or with two keys that
// differ only in case, since tags are looked up without regard to it.
func people(path string, m map[string]string, form *lazyregexp.Regexp, want string) error {
	seen := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !form.MatchString(m[k]) {
			return fieldError(path, "%q is given %q, which is not %s", k, m[k], want)
		}
		folded := strings.ToLower(k)
		if other, twice := seen[folded]; twice {
			return fieldError(path, "%q and %q differ only in case", other, k)
		}
		seen[folded] = k
	}
	return nil
}

// find looks a tag's value up without regard to case.
func find(m map[string]string, value string) (string, bool) {
	if a, ok := m[value]; ok {
		return a, true
	}
	for k, a := range m {
		if strings.EqualFold(k, value) {
			return a, true
		}
	}
	return "", false
}
