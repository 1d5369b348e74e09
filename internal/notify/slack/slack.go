// Package slack delivers messages to Slack channels and people by chat.postMessage.
package slack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	api "github.com/slack-go/slack"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Channel writes to one workspace.
type Channel struct {
	client *api.Client
}

// Open is the notify.Opener of the section slack.
func Open(c notify.Config, lookup notify.Lookup) (string, notify.Channel, error) {
	s := c.Slack
	if !s.Used() {
		return notify.SlackChannel, nil, nil
	}
	token, err := notify.Secret("slack.token", s.TokenEnv, s.TokenFile, lookup)
	if err != nil {
		return notify.SlackChannel, nil, err
	}
	base := cmp.Or(s.BaseURL, api.APIURL)
	client := api.New(token,
		api.OptionAPIURL(strings.TrimSuffix(base, "/")+"/"),
		api.OptionHTTPClient(&caller{notify.NewHTTP(notify.Secrets{token})}))
	return notify.SlackChannel, &Channel{client: client}, nil
}

// Send posts to a channel or member. Only an answer that says ok accepts it.
func (c *Channel) Send(ctx context.Context, to string, m action.Message) error {
	l := notify.Compose(m)
	_, _, err := c.client.PostMessageContext(ctx, to,
		api.MsgOptionText(plain.Cut(l.Text(), maxText), true),
		api.MsgOptionBlocks(blocks(l)...),
		api.MsgOptionDisableMarkdown(),
		api.MsgOptionDisableLinkUnfurl(),
		api.MsgOptionDisableMediaUnfurl())
	return err
}

// caller makes the requests of the API's client, and reads the answers itself: to
// the client, an answer that says neither ok nor why not is none at all.
type caller struct {
	http *notify.HTTP
}

// answer is the common part of the answers of the Web API
// (https://docs.slack.dev/apis/web-api/#responses).
type answer struct {
	OK     bool   `json:"ok"`
	Error  string `json:"error"`
	Needed string `json:"needed"`
}

// Do makes a request; every answer but {"ok":true} is an error.
func (c *caller) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, &notify.Failure{Why: "the answer is not Slack's: it is no JSON object"}
	}
	if !a.OK {
		return nil, a.failure()
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// code is the form of Slack's errors. Nothing else is repeated: no token fits.
var code = lazyregexp.New(`^[a-z0-9_]{1,60}$`)

// passing are the errors that pass by themselves
// (https://docs.slack.dev/reference/methods/chat.postMessage#errors).
var passing = map[string]bool{
	"ratelimited": true, "rate_limited": true, "message_limit_exceeded": true, "internal_error": true,
	"fatal_error": true, "service_unavailable": true, "request_timeout": true, "team_added_to_org": true,
}

// remedies are the next steps after errors that a configuration causes.
var remedies = map[string]string{
	"not_in_channel":    "invite the app to the channel",
	"channel_not_found": "there is no such channel, or the app is not in it",
	"is_archived":       "the channel is archived",
	"invalid_auth":      "the token is not valid",
	"not_authed":        "the token is not valid",
	"account_inactive":  "the token's user left the workspace",
	"token_revoked":     "the token was revoked",
	"token_expired":     "the token has expired",
	"missing_scope":     "the token may not chat:write",
	"user_not_found":    "there is no such member",
}

func (a answer) failure() *notify.Failure {
	if !code.MatchString(a.Error) {
		return &notify.Failure{Why: "the answer is not ok, and Slack gives no reason"}
	}
	f := &notify.Failure{Why: a.Error, Temporary: passing[a.Error]}
	if remedy := remedies[a.Error]; remedy != "" {
		f.Why += " (" + remedy + ")"
	}
	return f
}
