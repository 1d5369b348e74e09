package aws

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// BindingHeader carries the purpose of a presigned identity. It is signed, so that the call cannot
// be reused for another purpose.
const BindingHeader = "X-Curfew-Binding"

// Bounds of proofs.
const (
	callerAge     = 15 * time.Minute
	callerSkew    = 2 * time.Minute
	callerTimeout = 10 * time.Second
	callerAnswer  = 64 << 10
)

// stsHost matches the hosts trusted to identify a caller, regardless of SDK configuration such as
// AWS_ENDPOINT_URL.
var stsHost = lazyregexp.New(`^sts(\.[a-z]{2}(-[a-z]+){1,3}-[0-9]{1,2})?\.amazonaws\.com(\.cn)?$`)

// Caller proves the owner of AWS credentials to another process: the owner presigns a
// GetCallerIdentity call, and the verifier makes it.
type Caller struct {
	// Endpoint overrides the STS host, for a sandbox: "http://127.0.0.1:5000". Empty allows only
	// AWS's hosts.
	Endpoint string
	Now      func() time.Time
	// MaxAge is the maximum age of a proof; 0 means 15 minutes, the limit.
	MaxAge time.Duration
}

// Identity is the identity of a caller according to STS.
type Identity struct {
	ARN, Account string
	// Host is the host that answered.
	Host string
}

// ErrNoCredentials is returned when there is no identity to prove.
var ErrNoCredentials = errors.New("there are no AWS credentials")

// Sign presigns a call that proves, to whoever makes it within 15 minutes, that the owner of a
// profile's credentials confirms a binding.
func (c Caller) Sign(ctx context.Context, profile, region, binding string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callerTimeout)
	defer cancel()
	cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(profile))
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrNoCredentials, oneLine(innermost(err).Error()))
	}
	if cfg.Credentials == nil {
		return "", ErrNoCredentials
	}
	creds, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrNoCredentials, oneLine(innermost(err).Error()))
	}
	for _, r := range []string{region, cfg.Region, "us-east-1"} {
		if r != "" {
			region = r
			break
		}
	}
	return c.sign(ctx, creds, region, binding)
}

func (c Caller) sign(ctx context.Context, creds awssdk.Credentials, region, binding string) (string, error) {
	base := c.Endpoint
	if base == "" {
		base = "https://sts." + region + ".amazonaws.com"
		if strings.HasPrefix(region, "cn-") {
			base += ".cn"
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(base, "/")+"/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Expires=900", nil)
	if err != nil {
		return "", fmt.Errorf("presign the caller's identity: %w", err)
	}
	req.Header.Set(BindingHeader, bound(binding))
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, creds, req, emptyBody, "sts", region, c.Now().UTC())
	if err != nil {
		return "", fmt.Errorf("presign the caller's identity: %w", err)
	}
	return signed, nil
}

// emptyBody is the SHA-256 of an empty body.
const emptyBody = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// bound returns the signed form of a binding.
func bound(binding string) string {
	sum := sha256.Sum256([]byte(binding))
	return hex.EncodeToString(sum[:])
}

// signedKeys are the only allowed keys of a presigned identity.
var signedKeys = []string{
	"Action", "Version", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token",
	"X-Amz-SignedHeaders", "X-Amz-Signature",
}

// Verify makes a presigned call and returns the identity reported by STS. It fails if the call is
// for another host or binding, or over 15 minutes old.
func (c Caller) Verify(ctx context.Context, signed, binding string) (Identity, error) {
	u, err := c.check(signed)
	if err != nil {
		return Identity{}, fmt.Errorf("the proof of an AWS identity is not taken: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return Identity{}, fmt.Errorf("ask STS: %w", err)
	}
	req.Header.Set(BindingHeader, bound(binding))
	if q := u.Query(); c.Endpoint != "" { // sandboxes identify the service only by this header
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+q.Get("X-Amz-Credential")+", SignedHeaders="+
			q.Get("X-Amz-SignedHeaders")+", Signature="+q.Get("X-Amz-Signature"))
	}
	client := httpclient.New(httpclient.Options{WholeBody: true, MaxBody: callerAnswer})
	defer client.Close()
	res, err := client.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // the URL is the proof, so it must not be shown
		}
		return Identity{}, fmt.Errorf("ask %s who signed: %w", u.Host, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return Identity{}, fmt.Errorf("ask %s who signed: %w", u.Host, err)
	}
	if res.StatusCode != http.StatusOK {
		return Identity{}, fmt.Errorf(
			"%s does not know who signed (HTTP %d): the proof expired, is for another request, "+
				"or its credentials are void", u.Host, res.StatusCode)
	}
	var answer struct {
		XMLName xml.Name `xml:"GetCallerIdentityResponse"`
		Result  struct {
			Arn     string `xml:"Arn"`
			Account string `xml:"Account"`
		} `xml:"GetCallerIdentityResult"`
	}
	if err := xml.Unmarshal(body, &answer); err != nil || !strings.HasPrefix(answer.Result.Arn, "arn:") ||
		answer.Result.Account == "" {
		return Identity{}, fmt.Errorf("%s gave no answer of STS", u.Host)
	}
	return Identity{ARN: answer.Result.Arn, Account: answer.Result.Account, Host: u.Host}, nil
}

// check refuses a presigned call that is not exactly GetCallerIdentity at a trusted host, for a
// binding, and recent.
func (c Caller) check(signed string) (*url.URL, error) {
	u, err := url.Parse(signed)
	if err != nil {
		return nil, errors.New("it is no URL")
	}
	pinned := u.Scheme == "https" && stsHost.MatchString(u.Host)
	if c.Endpoint != "" {
		pinned = u.Scheme+"://"+u.Host == strings.TrimSuffix(c.Endpoint, "/")
	}
	if !pinned || u.User != nil || u.Path != "/" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not a host of STS", u.Scheme+"://"+u.Host)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("its query cannot be read")
	}
	for key, values := range q {
		if len(values) != 1 || !slices.Contains(signedKeys, key) {
			return nil, fmt.Errorf("its query has %q", key)
		}
	}
	if q.Get("Action") != "GetCallerIdentity" || q.Get("Version") != "2011-06-15" || q.Get("X-Amz-Signature") == "" {
		return nil, errors.New("it is not a signed call of GetCallerIdentity")
	}
	headers := strings.Split(q.Get("X-Amz-SignedHeaders"), ";")
	if !slices.Contains(headers, "host") || !slices.Contains(headers, strings.ToLower(BindingHeader)) {
		return nil, errors.New("it is signed for nothing")
	}
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil {
		return nil, errors.New("it has no time")
	}
	most := callerAge
	if c.MaxAge > 0 {
		most = min(most, c.MaxAge)
	}
	switch age := c.Now().Sub(at); {
	case age > most:
		return nil, fmt.Errorf("it is %s old, over %s", age.Truncate(time.Second), most)
	case age < -callerSkew:
		return nil, fmt.Errorf("it is of %s, which is still to come", at.Format(time.RFC3339))
	}
	return u, nil
}
