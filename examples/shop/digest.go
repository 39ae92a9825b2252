package shop

import (
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Digest collects the reviews of an hour, beginning with the first one, and sends them as one message.
func Digest(ctx workflow.Context) (string, error) {
	reviews := workflow.Signal(ctx, "review")
	var all []string
	text := ""
	if err := reviews.Receive(ctx, &text); err != nil {
		return "", err
	}
	end := workflow.Now(ctx).Add(time.Hour)
	for received := true; received; {
		all = append(all, text)
		var err error
		if received, err = reviews.ReceiveTimeout(ctx, end.Sub(workflow.Now(ctx)), &text); err != nil {
			return "", err
		}
	}
	message := strings.Join(all, ", ")
	return message, workflow.ExecuteActivity(within(ctx, time.Minute), Call, "send", message).Get(ctx, nil)
}
