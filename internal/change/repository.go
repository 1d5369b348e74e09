package change

import (
	"encoding/json"
	"fmt"
)

// registryRule is a rule of a repository's lifecycle (Amazon ECR User Guide, "Lifecycle
// policy properties").
type registryRule struct {
	Priority    int               `json:"rulePriority"`
	Description string            `json:"description,omitempty"`
	Selection   registrySelection `json:"selection"`
	Action      registryAction    `json:"action"`
}

type registrySelection struct {
	TagStatus   string `json:"tagStatus"`
	CountType   string `json:"countType"`
	CountUnit   string `json:"countUnit,omitempty"`
	CountNumber int    `json:"countNumber"`
}

type registryAction struct {
	Type string `json:"type"`
}

// untaggedRule expires images without a tag. Its description serves as its name.
func untaggedRule(priority, days int) registryRule {
	return registryRule{Priority: priority, Description: RulePrefix + "untagged",
		Selection: registrySelection{
			TagStatus: "untagged", CountType: "sinceImagePushed", CountUnit: "days", CountNumber: days,
		},
		Action: registryAction{Type: "expire"}}
}

// registryPolicy is a repository's lifecycle with its rules as written.
type registryPolicy struct {
	Rules []json.RawMessage `json:"rules"`
}

// WithUntagged returns a repository's lifecycle with a rule that expires images without a tag some
// days after their push, and other rules unchanged. changed is false if a rule for them exists. An
// empty text is a repository without a lifecycle.
func WithUntagged(text string, days int) (merged string, changed bool, err error) {
	var p registryPolicy
	if text != "" {
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return "", false, fmt.Errorf("read the lifecycle policy as JSON: %w", err)
		}
	}
	last := 0
	for _, raw := range p.Rules {
		var r registryRule
		if err := json.Unmarshal(raw, &r); err != nil {
			return "", false, fmt.Errorf("read a rule of the lifecycle policy: %w", err)
		}
		// A rule for any image includes untagged ones, and has to be the last.
		if r.Selection.TagStatus != "tagged" {
			return text, false, nil
		}
		last = max(last, r.Priority)
	}
	rule, err := json.Marshal(untaggedRule(last+1, days))
	if err != nil {
		return "", false, fmt.Errorf("write a rule: %w", err)
	}
	out, err := json.Marshal(registryPolicy{Rules: append(p.Rules, rule)})
	return string(out), true, err
}
