package approval

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// ProofKind is the kind of an identity proof.
type ProofKind string

// The kinds. The zero kind proves nothing, as SelfDeclared does.
const (
	// SelfDeclared is a name from the environment, a file or the operating system.
	SelfDeclared ProofKind = "self-declared"
	// OwnerToken is the owner token of a service, whose holder acts as the user of the service. The
	// name is the service's, so it does not identify a person.
	OwnerToken ProofKind = "owner-token"
	// GitHubReview is a review returned by GitHub's API.
	GitHubReview ProofKind = "github-review"
	// Token is a token of the service, OIDC a session or token of the sign-in provider; the acting
	// service has verified it.
	Token ProofKind = "token"
	OIDC  ProofKind = "oidc"
	// AWSCaller is a response of STS to GetCallerIdentity.
	AWSCaller ProofKind = "aws-caller"
)

// ProofAge is the maximum age of a signed proof when it is checked.
const ProofAge = 15 * time.Minute

// Proof describes how a person was identified.
type Proof struct {
	Kind ProofKind `json:"kind,omitempty"`
	// Subject is the identity at its provider: an ARN, a login.
	Subject string `json:"subject,omitempty"`
	// Detail is the evidence: the URL of a review, the host that responded.
	Detail string `json:"detail,omitempty"`
	// Mapped is true if the people section of the configuration names the identity.
	Mapped bool `json:"mapped,omitempty"`
	// Signed is a proof that other processes can verify again: a presigned call that only the owner
	// of the credentials can make. It is not for display.
	Signed string `json:"signed,omitempty"`
}

// Verified reports whether a provider vouched for the identity.
func (p Proof) Verified() bool {
	return p.Kind != "" && p.Kind != SelfDeclared && p.Kind != OwnerToken
}

// String describes the proof of an identity.
func (p Proof) String() string {
	if !p.Verified() {
		return cmp.Or(string(p.Kind), string(SelfDeclared)) + ", not verified"
	}
	s := string(p.Kind) + " " + p.Subject
	if p.Detail != "" {
		s += ", " + p.Detail
	}
	return s
}

// iamUser reports whether an ARN is a single IAM user. The session name of a role is chosen by its
// caller.
func iamUser(arn string) bool {
	parts := strings.SplitN(arn, ":", 6)
	return len(parts) == 6 && parts[2] == "iam" && strings.HasPrefix(parts[5], "user/")
}

// One returns the reason why two identities may belong to one person, or "". Identities of two
// providers, and role sessions, belong to two people only if the people section of the
// configuration names them.
func One(a, b Person) string {
	switch {
	case MaybeSame(a.Name, b.Name):
		return "both are " + a.Name
	case !a.Proof.Verified() && !b.Proof.Verified(), a.Proof.Mapped && b.Proof.Mapped:
		return ""
	case a.Proof.Kind == b.Proof.Kind && (a.Proof.Kind == GitHubReview || a.Proof.Kind == OIDC) &&
		a.Proof.Subject != b.Proof.Subject:
		return ""
	case a.Proof.Kind == b.Proof.Kind && a.Proof.Subject != b.Proof.Subject && iamUser(a.Proof.Subject) &&
		iamUser(b.Proof.Subject):
		return ""
	}
	return fmt.Sprintf(
		"%s (%s) and %s (%s) may be one person: the people section of the configuration has to name both",
		a.Name, a.Proof, b.Name, b.Proof)
}

// alike maps letters of other scripts to similar Latin letters in lower case.
var alike = func() map[rune]rune {
	m := map[rune]rune{}
	for latin, others := range map[rune]string{
		'a': "аαɑ", 'b': "ьвβɓҍ", 'c': "сϲƈ", 'd': "ԁɗ", 'e': "еєεɛҽ", 'f': "ƒ", 'g': "ɡցɠ", 'h': "һհн", 'i': "іιɩı",
		'j': "јϳ", 'k': "кκ", 'l': "ӏⅼ|ɭ",
		'm': "м", 'n': "ոпη", 'o': "оοօσӧ0", 'p': "рρ", 'q': "ԛզ", 'r': "гɼ", 's': "ѕꜱʂ",
		't': "тτ", 'u': "υսцʋ", 'v': "νѵ",
		'w': "ԝωѡ", 'x': "хχ", 'y': "уүγу", 'z': "ᴢʐ",
	} {
		for _, r := range others {
			m[r] = latin
		}
	}
	m['1'], m['i'] = 'l', 'l' // similar in upper case
	return m
}()

// Skeleton returns the visual skeleton of a name: names with the same skeleton may be mistaken for
// each other. It folds compatibility forms, case, accents, invisible characters, and letters of
// other scripts that look like Latin ones.
func Skeleton(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		r = unicode.ToLower(r)
		if latin, ok := alike[r]; ok {
			r = latin
			if again, ok := alike[r]; ok {
				r = again
			}
		}
		return r
	}, norm.NFKD.String(normalizeName(name)))
}

// LookAlikes returns an error if two different names look the same.
func LookAlikes(names []string) error {
	seen := map[string]string{}
	for _, name := range names {
		key := Skeleton(name)
		if strings.HasPrefix(strings.ToLower(name), "github:") {
			key = "github:" + key // a GitHub login and a configured name may belong to one person
		}
		if other, ok := seen[key]; ok && other != name && !Same(other, name) {
			return fmt.Errorf("%+q and %+q look the same: rename one of them", other, name)
		}
		seen[key] = name
	}
	return nil
}
