package slack

import (
	"fmt"
	"strings"
	"time"

	api "github.com/slack-go/slack"
	"github.com/slack-go/slack/slackutilsx"

	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Longest texts in characters (https://docs.slack.dev/reference/block-kit/blocks).
const (
	maxHeader  = 150
	maxSection = 3000
	maxField   = 2000
	// maxText is where Slack advises to end the fallback text, which it cuts at
	// 40,000 characters.
	maxText = 4000
)

// blocks lays a letter out. What comes from outside is in plain_text, which Slack
// does not parse, or escaped and in verbatim, so that no name mentions a channel,
// becomes a link or shows as anything but itself.
func blocks(l notify.Letter) []api.Block {
	out := []api.Block{api.NewHeaderBlock(plainText(strings.TrimPrefix(l.Subject, "curfew: "), maxHeader))}
	var fields []*api.TextBlockObject
	for _, row := range l.Rows {
		lines := strings.Join(row.Lines, "\n")
		switch row.Name {
		case notify.RowWhy, notify.RowPlan:
			out = append(out, section(plainText(lines, maxSection)))
		case notify.RowWhen:
			out = append(out, section(markup(date(l.When)+escape(" ("+lines+")"))))
		default:
			fields = append(fields, plainText(row.Name+"\n"+lines, maxField))
		}
	}
	if len(fields) > 0 {
		out = append(out, api.NewSectionBlock(nil, fields, nil))
	}
	for _, way := range l.Ways() {
		out = append(out, section(plainText(way.Name, maxSection)), section(command(way.Lines[0])))
	}
	return out
}

func section(text *api.TextBlockObject) api.Block { return api.NewSectionBlock(text, nil, nil) }

func plainText(s string, n int) *api.TextBlockObject {
	return api.NewTextBlockObject(api.PlainTextType, plain.Cut(s, n), false, false)
}

func markup(s string) *api.TextBlockObject {
	return api.NewTextBlockObject(api.MarkdownType, s, false, true)
}

// escape makes text stand for itself in markup
// (https://docs.slack.dev/messaging/formatting-message-text#escaping).
func escape(s string) string { return slackutilsx.EscapeMessage(s) }

// date shows a time as it is where the reader is
// (https://docs.slack.dev/messaging/formatting-message-text#date-formatting).
func date(t time.Time) string {
	return fmt.Sprintf("<!date^%d^{date_long_pretty} {time}|%s>", t.Unix(), t.Format("Mon 2 Jan 2006 15:04 MST"))
}

// command is a code block, easy to copy. A command that would end it early, or that
// would not fit, is plain text.
func command(s string) *api.TextBlockObject {
	block := "```" + escape(s) + "```"
	if strings.Contains(s, "`") || len(block) > maxSection {
		return plainText(s, maxSection)
	}
	return markup(block)
}
