package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/curfew-dev/curfew/internal/httpclient"
)

// Limits of the sign-in provider.
const (
	// providerTimeout bounds a call with its retries, providerBody the size of its response.
	providerTimeout = 10 * time.Second
	providerBody    = 1 << 20
	// providerInterval is the minimum time between two fetches, which unauthenticated callers can
	// cause.
	providerInterval = 20 * time.Second
	// keysFresh is the age at which the keys are fetched again, so that a withdrawn key becomes
	// invalid. Keys older than keysLimit are invalid if the provider is unreachable.
	keysFresh = 10 * time.Minute
	keysLimit = time.Hour
	// maxKeysOfProvider bounds the keys that are tried, minRSA is the minimum size of an RSA key in
	// bits.
	maxKeysOfProvider = 50
	minRSA            = 2048
	// clockSkew is the maximum lead of the provider's clock.
	clockSkew = time.Minute
	// maxSubject bounds a subject in characters (OpenID Connect Core 1.0, 2).
	maxSubject = 255
)

// signatures are the accepted algorithms of ID tokens. A symmetric one would turn the client secret
// into a key, and "none" is no signature.
var signatures = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// provider is the sign-in provider. Endpoints and keys are fetched on demand, once for all waiting
// callers, without holding a lock.
type provider struct {
	OIDC
	http    *httpclient.Client
	now     func() time.Time
	fetches singleflight.Group

	mu     sync.Mutex
	known  *metadata
	tried  time.Time
	failed error
}

// metadata is the provider's discovery document (OpenID Connect Discovery 1.0, 3), with its keys.
type metadata struct {
	endpoint oauth2.Endpoint
	keys     []jose.JSONWebKey
	at       time.Time
}

func newProvider(o OIDC, now func() time.Time) *provider {
	bounds := httpclient.Options{Attempts: 2, TotalTimeout: providerTimeout, MaxBody: providerBody, WholeBody: true}
	return &provider{OIDC: o, now: now, http: httpclient.New(bounds)}
}

// metadata returns the provider's metadata. It is fetched again if it is old or lacks reports that
// something is missing, but not twice within providerInterval.
func (p *provider) metadata(ctx context.Context, lacks func(*metadata) bool) (*metadata, error) {
	if m, settled, err := p.settled(lacks); settled {
		return m, err
	}
	fetched := p.fetches.DoChan("", func() (any, error) {
		if _, settled, _ := p.settled(lacks); settled { // another call was faster
			return nil, nil
		}
		// The result is for all waiters, so the context of one must not cancel it.
		m, err := p.fetch(context.WithoutCancel(ctx))
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tried, p.failed = p.now(), err
		if err == nil {
			p.known = m
		}
		return nil, nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-fetched:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usable()
}

// settled returns the metadata if the provider is not to be queried now.
func (p *provider) settled(lacks func(*metadata) bool) (m *metadata, settled bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.known != nil && now.Sub(p.known.at) < keysFresh && (lacks == nil || !lacks(p.known)) {
		return p.known, true, nil
	}
	if p.tried.IsZero() || now.Sub(p.tried) >= providerInterval {
		return nil, false, nil
	}
	m, err = p.usable()
	return m, true, err
}

// usable returns the metadata if it is not too old. The caller holds the lock.
func (p *provider) usable() (*metadata, error) {
	if p.known == nil || p.now().Sub(p.known.at) >= keysLimit {
		return nil, fmt.Errorf("ask the sign-in provider: %w", p.failed)
	}
	return p.known, nil
}

// fetch fetches the endpoints and the keys.
func (p *provider) fetch(ctx context.Context) (*metadata, error) {
	m := &metadata{at: p.now()}
	var doc struct {
		Issuer    string `json:"issuer"`
		Authorize string `json:"authorization_endpoint"`
		Token     string `json:"token_endpoint"`
		Keys      string `json:"jwks_uri"`
	}
	if err := p.get(ctx, strings.TrimSuffix(p.Issuer, "/")+"/.well-known/openid-configuration", &doc); err != nil {
		return nil, err
	}
	if doc.Issuer != p.Issuer {
		return nil, fmt.Errorf("the provider calls itself %q, and serve.sign_in.issuer is %q", doc.Issuer, p.Issuer)
	}
	for _, address := range []string{doc.Authorize, doc.Token, doc.Keys} {
		u, err := url.Parse(address)
		plain := err == nil && u.Scheme == "http" && strings.HasPrefix(p.Issuer, "http://") // on this machine
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !plain {
			return nil, fmt.Errorf("the provider names the address %q, which is not https", address)
		}
	}
	m.endpoint = oauth2.Endpoint{AuthURL: doc.Authorize, TokenURL: doc.Token}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := p.get(ctx, doc.Keys, &set); err != nil {
		return nil, err
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) == nil && counts(key) && len(m.keys) < maxKeysOfProvider {
			m.keys = append(m.keys, key)
		}
	}
	if len(m.keys) == 0 {
		return nil, fmt.Errorf(
			"the provider has no key that counts: RSA of %d bits or more, an elliptic curve, or Ed25519",
			minRSA)
	}
	return m, nil
}

// get reads a document of the provider, whose names are case-sensitive.
func (p *provider) get(ctx context.Context, address string, doc any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", address, err)
	case resp.StatusCode != http.StatusOK: // including redirects
		return fmt.Errorf("read %s: it answered %d", address, resp.StatusCode)
	}
	if err := json.Unmarshal(text, doc); err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	return nil
}

// counts reports whether a key may sign ID tokens.
func counts(key jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" || !key.Valid() || !key.IsPublic() {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// claims are the claims of an ID token in use (OpenID Connect Core 1.0, 2), by exact name.
type claims struct {
	Issuer          string           `json:"iss"`
	Subject         string           `json:"sub"`
	Audience        jwt.Audience     `json:"aud"`
	Expiry          *jwt.NumericDate `json:"exp"`
	IssuedAt        *jwt.NumericDate `json:"iat"`
	NotBefore       *jwt.NumericDate `json:"nbf"`
	Nonce           string           `json:"nonce"`
	AuthorizedParty string           `json:"azp"`
	Email           string           `json:"email"`
	EmailVerified   bool             `json:"email_verified"`
}

// verify returns the claims of a valid ID token that the provider signed for this service.
func (p *provider) verify(ctx context.Context, raw string) (claims, error) {
	var c claims
	signed, err := jose.ParseSignedCompact(raw, signatures)
	if err != nil || len(signed.Signatures) != 1 {
		return c, errors.New("it is no ID token")
	}
	head := signed.Signatures[0].Header
	fits := func(key jose.JSONWebKey) bool {
		return (head.KeyID == "" || key.KeyID == head.KeyID) &&
			(key.Algorithm == "" || key.Algorithm == head.Algorithm)
	}
	m, err := p.metadata(ctx, func(m *metadata) bool { return !slices.ContainsFunc(m.keys, fits) })
	if err != nil {
		return c, err
	}
	var payload []byte
	for _, key := range m.keys {
		if fits(key) && payload == nil {
			payload, _ = signed.Verify(key.Key)
		}
	}
	if payload == nil {
		return c, errors.New("no key of the provider signed it")
	}
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, fmt.Errorf("read its claims: %w", err)
	}
	return c, p.check(c)
}

// check validates the claims of a signed token.
func (p *provider) check(c claims) error {
	now := p.now()
	switch {
	case c.Issuer != p.Issuer:
		return errors.New("another provider issued it")
	case c.Subject == "" || len(c.Subject) > maxSubject:
		return errors.New("it names no subject")
	case p.ClientID == "" || !slices.Contains(c.Audience, p.ClientID):
		return errors.New("it is for another service")
	case c.AuthorizedParty != "" && c.AuthorizedParty != p.ClientID, c.AuthorizedParty == "" && len(c.Audience) > 1:
		return errors.New("it was given to another service (azp)")
	case c.Expiry == nil || !now.Before(c.Expiry.Time()):
		return errors.New("it has expired")
	case c.IssuedAt == nil || c.IssuedAt.Time().After(now.Add(clockSkew)):
		return errors.New("it was issued in the future")
	case c.NotBefore != nil && c.NotBefore.Time().After(now.Add(clockSkew)):
		return errors.New("it does not count yet")
	}
	return nil
}

// config returns the OAuth 2 configuration for browser sign-ins.
func (p *provider) config(m *metadata, publicURL string) oauth2.Config {
	return oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: m.endpoint,
		RedirectURL: strings.TrimSuffix(publicURL, "/") + "/auth/callback",
		Scopes:      []string{"openid", "email", "profile"}}
}

// with returns a context in which the OAuth library uses the server's HTTP client.
func (p *provider) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, p.http.Standard())
}
