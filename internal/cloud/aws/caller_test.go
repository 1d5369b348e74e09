package aws

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// stsStandIn knows users by their keys and verifies signatures by signing the same call again.
func stsStandIn(t *testing.T, users map[string]awssdk.Credentials) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		key, _, _ := strings.Cut(q.Get("X-Amz-Credential"), "/")
		for name, creds := range users {
			at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
			if creds.AccessKeyID != key || err != nil {
				continue
			}
			again, _ := http.NewRequest(http.MethodGet, "http://"+r.Host+"/?Action="+q.Get("Action")+"&Version="+
				q.Get("Version")+"&X-Amz-Expires="+q.Get("X-Amz-Expires"), nil)
			again.Header.Set(BindingHeader, r.Header.Get(BindingHeader))
			signed, _, err := v4.NewSigner().PresignHTTP(r.Context(), creds, again, emptyBody, "sts", "us-east-1", at)
			if err != nil {
				t.Error(err)
			}
			if u, err := url.Parse(signed); err == nil &&
				u.Query().Get("X-Amz-Signature") == q.Get("X-Amz-Signature") {
				fmt.Fprintf(w,
					"<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::111122223333:user/%s</Arn><UserId>A</UserId><Account>111122223333</Account></GetCallerIdentityResult></GetCallerIdentityResponse>", name)
				return
			}
		}
		http.Error(w, "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code></Error></ErrorResponse>",
			http.StatusForbidden)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestCallerProofHasOneBinding checks that a presigned identity is accepted only for its binding,
// with its credentials, within 15 minutes and from a trusted host.
func TestCallerProofHasOneBinding(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	bo := awssdk.Credentials{AccessKeyID: "AKIABO", SecretAccessKey: "bo-secret", SessionToken: "tok"}
	sts := stsStandIn(t, map[string]awssdk.Credentials{"bo": bo})
	c := Caller{Endpoint: sts.URL, Now: func() time.Time { return now }}
	ctx := context.Background()
	signed, err := c.sign(ctx, bo, "us-east-1", "request 1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Verify(ctx, signed, "request 1")
	if err != nil || got.ARN != "arn:aws:iam::111122223333:user/bo" || got.Account != "111122223333" {
		t.Fatalf("%+v, %v", got, err)
	}
	forged, err := c.sign(ctx, awssdk.Credentials{AccessKeyID: "AKIABO", SecretAccessKey: "guessed"}, "us-east-1",
		"request 1")
	if err != nil {
		t.Fatal(err)
	}
	real, err := Caller{Now: c.Now}.sign(ctx, bo, "eu-west-1", "request 1")
	if err != nil || !strings.HasPrefix(real, "https://sts.eu-west-1.amazonaws.com/?") {
		t.Fatalf("%s, %v", real, err)
	}
	for name, tc := range map[string]struct {
		signed, binding string
		at              time.Duration
		endpoint, says  string
	}{
		"another request":     {signed, "request 2", 0, sts.URL, "does not know who signed"},
		"guessed credentials": {forged, "request 1", 0, sts.URL, "does not know who signed"},
		"old":                 {signed, "request 1", 15*time.Minute + time.Second, sts.URL, "old, over 15m"},
		"from the future":     {signed, "request 1", -3 * time.Minute, sts.URL, "still to come"},
		"a host of the asker": {signed, "request 1", 0, "", "is not a host of STS"},
		"another call": {
			strings.Replace(signed, "Action=GetCallerIdentity", "Action=AssumeRole", 1), "request 1", 0, sts.URL,
			"not a signed call",
		},
		"another key": {signed + "&RoleArn=x", "request 1", 0, sts.URL, "RoleArn"},
		"twice":       {signed + "&Action=GetCallerIdentity", "request 1", 0, sts.URL, "Action"},
		"signed for nothing": {
			strings.Replace(signed, "x-curfew-binding", "x-other", 1), "request 1", 0, sts.URL, "signed for nothing",
		},
		"a subdomain": {
			strings.Replace(real, "amazonaws.com", "amazonaws.com.evil.example", 1), "request 1", 0, "",
			"is not a host of STS",
		},
		"user info": {
			strings.Replace(real, "https://", "https://sts.amazonaws.com@", 1), "request 1", 0,
			"", "is not a host of STS",
		},
		"no TLS": {
			strings.Replace(real, "https://", "http://", 1), "request 1", 0, "", "is not a host of STS",
		},
		"no host of a sandbox": {real, "request 1", 0, sts.URL, "is not a host of STS"},
	} {
		c := Caller{Endpoint: tc.endpoint, Now: func() time.Time { return now.Add(tc.at) }}
		if got, err := c.Verify(ctx, tc.signed, tc.binding); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, tc.says)
		} else if strings.Contains(err.Error(), "Signature=") {
			t.Errorf("%s: the error shows the proof: %v", name, err)
		}
	}

	// A response that is not from STS proves no identity.
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<html>Arn arn:aws:iam::1:user/bo</html>")
	}))
	defer html.Close()
	c.Endpoint = html.URL
	if signed, err = c.sign(ctx, bo, "us-east-1", "x"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Verify(ctx, signed, "x"); err == nil {
		t.Errorf("a page of HTML proves %+v", got)
	}
}
