// Package webhook delivers messages as signed JSON to one URL; docs/notifications.md
// describes the document and its signature.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/notify"
)

// Names of the headers.
const (
	// SignatureHeader is "t=1795273440,v1=5257a8…": the time of sending in seconds
	// since 1970, and the signature in hexadecimal.
	SignatureHeader = "Curfew-Signature"
	// DeliveryHeader is the document's id. It is the same in every attempt.
	DeliveryHeader = "Curfew-Delivery"
)

// Channel posts to one URL.
type Channel struct {
	url     string
	key     []byte
	headers map[string]string
	http    *notify.HTTP
	now     func() time.Time
}

// Open is the notify.Opener of the section webhook.
func Open(c notify.Config, lookup notify.Lookup) (string, notify.Channel, error) {
	if !c.Webhook.Used() {
		return notify.WebhookChannel, nil, nil
	}
	ch, err := open(c.Webhook, lookup)
	if err != nil {
		return notify.WebhookChannel, nil, err
	}
	return notify.WebhookChannel, ch, nil
}

func open(w notify.Webhook, lookup notify.Lookup) (*Channel, error) {
	ch := &Channel{url: w.URL, headers: map[string]string{}, now: time.Now}
	if w.URL == "" {
		var err error
		if ch.url, err = notify.Secret("webhook.url", w.URLEnv, w.URLFile, lookup); err != nil {
			return nil, err
		}
		if _, err := notify.ParseURL(ch.url); err != nil {
			return nil, &notify.FieldError{Path: "webhook.url", Message: err.Error()}
		}
	}
	key, err := notify.Secret("webhook.secret", w.SecretEnv, w.SecretFile, lookup)
	if err != nil {
		return nil, err
	}
	ch.key = []byte(key)
	secrets := notify.Secrets{ch.url, key}
	for name, variable := range w.HeadersEnv {
		value, err := notify.Secret("webhook.headers", variable, "", lookup)
		if err != nil {
			return nil, err
		}
		ch.headers[name] = value
		secrets = append(secrets, value)
	}
	ch.http = notify.NewHTTP(secrets)
	return ch, nil
}

// Send posts the message. Any 2xx accepts it; redirects are not followed.
func (c *Channel) Send(ctx context.Context, _ string, m action.Message) error {
	doc := newDocument(m)
	body, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode the notification: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		// The error would repeat the URL, which may be a secret.
		return errors.New("the URL of the webhook makes no request")
	}
	for name, value := range c.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(DeliveryHeader, doc.ID)
	req.Header.Set(SignatureHeader, sign(c.key, c.now(), body))
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// sign returns the value of the signature's header: HMAC-SHA256 (RFC 2104) with the
// key over the time, a full stop and the body.
func sign(key []byte, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
