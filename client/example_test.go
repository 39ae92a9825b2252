package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// This program starts a workflow and waits for its result. It uses the first of two apps that responds.
func Example() {
	ctx := context.Background()
	app, err := client.New(client.Options{
		URLs:  []string{"https://app-1.example.com", "https://app-2.example.com"},
		Token: os.Getenv("SOJOURN_TOKEN"),
	})
	if err != nil {
		log.Fatal(err)
	}
	order, err := app.Start(ctx, "order", client.Args{"milk", 2}, client.StartOptions{WorkflowID: "order-7"})
	if err != nil {
		log.Fatal(err)
	}
	var receipt string
	if err := order.Result(ctx, &receipt); err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt)
}

// order and receipt are the argument and the result of a workflow.
type (
	order   struct{ Items []string }
	receipt struct{ Total int }
)

// orders is a typed name: the worker and the clients of the workflow share it.
const orders workflow.Name[order, receipt] = "order"

// Start checks the argument at compile time, and Result has the type of the workflow's result.
func ExampleStart() {
	ctx := context.Background()
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	run, err := client.Start(ctx, app, orders, order{Items: []string{"milk"}}, client.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	bill, err := run.Result(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bill.Total)
}

// Run starts a workflow and returns its result.
func ExampleRun() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	bill, err := client.Run(context.Background(), app, orders, order{Items: []string{"milk"}}, client.StartOptions{
		WorkflowID: "order-7",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bill.Total)
}

// New requires the URL of an app.
func ExampleNew() {
	_, err := client.New(client.Options{})
	fmt.Println(err)
	// Output: client: the URL of an app is missing
}

// Requests outside the limits of the app are refused before they are sent.
func ExampleClient_Start() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	_, err = app.Start(context.Background(), "order", nil, client.StartOptions{RunTimeout: -time.Hour})
	fmt.Println(errors.Is(err, client.ErrInvalidOptions), err)
	// Output: true validation_failed: run_timeout_seconds: must be between 0 and 315360000
}

// A filter can be built from conditions, which quotes values.
func ExampleWhere() {
	large := client.Where("WorkflowType").Is("order").And(client.Where("Amount").Above(100))
	fmt.Println(large.And(client.Where("Customer").In("Ada", "O'Neill")))
	// Output: ((WorkflowType = 'order') AND (Amount > 100)) AND (Customer IN ('Ada', 'O''Neill'))
}

// CreateSchedule starts a workflow every morning.
func ExampleClient_CreateSchedule() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	report, err := app.CreateSchedule(context.Background(), "report", client.ScheduleOptions{
		Spec:   client.ScheduleSpec{Cron: []string{"0 7 * * 1-5"}, TimeZone: "Europe/Berlin"},
		Action: client.ScheduleAction{WorkflowType: "report", Args: client.Args{"yesterday"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.ID)
}

// StartBatch cancels the orders of a faulty import, at most 50 per second.
func ExampleClient_StartBatch() {
	ctx := context.Background()
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	job, err := app.StartBatch(ctx, client.BatchOptions{
		Filter:        client.Where("WorkflowType").Is("order").And(client.Where("Import").Is("2026-11-29")),
		Action:        client.BatchCancel,
		RatePerSecond: 50,
		Reason:        "faulty import",
	})
	if err != nil {
		log.Fatal(err)
	}
	end, err := job.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(end.Done, "cancelled,", end.Refused, "refused")
	for r, err := range job.Results(ctx, "refused") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.WorkflowID, r.Message)
	}
}

// StartUpdate returns when the workflow has accepted the update.
func ExampleWorkflow_StartUpdate() {
	ctx := context.Background()
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	add, err := app.Handle("basket-7", "").StartUpdate(ctx, "add", client.Args{"milk"}, client.UpdateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	var items int
	if err := add.Result(ctx, &items); err != nil {
		log.Fatal(err)
	}
	fmt.Println(items, "items")
}

// The bank reports the outcome of a payment with the token that the activity sent to it before it returned
// activity.ErrPending.
func ExampleClient_CompleteActivity() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /paid", func(w http.ResponseWriter, r *http.Request) {
		err := app.CompleteActivity(r.Context(), r.FormValue("token"), r.FormValue("receipt"))
		switch client.ReasonOf(err) {
		case "": // recorded now or by an earlier call of the bank
		case client.ReasonAttemptEnded: // the attempt timed out, or the run has closed
			http.Error(w, "the order is closed: refund the payment", http.StatusGone)
		default:
			http.Error(w, err.Error(), http.StatusServiceUnavailable) // the bank calls again
		}
	})
}

// Migrate moves a session before maintenance of its worker.
func ExampleSession_Migrate() {
	ctx := context.Background()
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	for session, err := range app.Sessions(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if session.WorkerID == "w1" && session.Status == "active" {
			if err := app.Session(session.ID).Migrate(ctx, "", false, "maintenance"); err != nil {
				log.Fatal(err)
			}
		}
	}
}

// A filter selects runs by their columns and search attributes.
func ExampleClient_Runs() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	for run, err := range app.Runs(context.Background(), "WorkflowType = 'order' AND Amount > 100") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(run.WorkflowID, run.Status)
	}
}

// The first item of a cart starts the cart's workflow; later items are sent to the open run. A cart that has been paid
// is closed, and the next item begins a new one under the same ID.
func ExampleClient_SignalWithStart() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	o := client.StartOptions{WorkflowID: "cart-ada", ReusePolicy: client.AllowReuse}
	run, err := app.SignalWithStart(context.Background(), "cart", nil, "add", client.Args{"tea", 2}, o)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.RunID)
}

// An update starts the workflow if no run is open, and returns the result of the update.
func ExampleClient_UpdateWithStart() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	var total float64
	o := client.StartOptions{WorkflowID: "cart-ada"}
	if _, err := app.UpdateWithStart(
		context.Background(), "cart", nil, "add", client.Args{"tea", 2}, &total, o,
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(total)
}

// Execute starts a workflow and receives its result in one request.
func ExampleClient_Execute() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	var receipt string
	o := client.StartOptions{WorkflowID: "order-7", RunTimeout: time.Hour}
	if err := app.Execute(context.Background(), "order", client.Args{"milk", 2}, &receipt, o); err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt)
}

// The error of a run that did not complete describes the run.
func ExampleWorkflow_Result() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	var receipt string
	err = app.Handle("order-7", "").Result(context.Background(), &receipt)
	var ended *client.NotCompleted
	switch {
	case errors.As(err, &ended):
		fmt.Println("the order ended as", ended.Run.Status)
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println(receipt)
	}
}

// Redrive continues a failed run after its cause was corrected. Completed activities do not run again.
func ExampleWorkflow_Redrive() {
	ctx := context.Background()
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	order, err := app.Handle("order-7", "").Redrive(ctx)
	switch {
	case client.ReasonOf(err) == client.ReasonRunNotFailed:
		fmt.Println("the run is open, or closed in another way")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("continues as run", order.RunID)
	}
}

// Reset continues a run from the end of a workflow task, for example after a defect of its code was corrected.
func ExampleWorkflow_Reset() {
	ctx := context.Background()
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	order, err := app.Handle("order-7", "").Reset(ctx, client.ResetOptions{Event: 12, Reason: "wrong price"})
	switch {
	case client.ReasonOf(err) == client.ReasonResetPoint:
		fmt.Println(err) // contains the nearest events
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("continues as run", order.RunID)
	}
}

// An update changes the run and returns a result. Its validator may reject it.
func ExampleWorkflow_Update() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	var items int
	err = app.Handle("basket-7", "").Update(context.Background(), "add", &items, "milk")
	switch {
	case client.ReasonOf(err) == client.ReasonUpdateFailed:
		fmt.Println("not added:", err)
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println(items, "items")
	}
}

// History iterates over the events of a run.
func ExampleWorkflow_History() {
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range app.Handle("order-7", "").History(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Sequence, event.Time, event.Type)
	}
}

// The headers of a context accompany all requests with it. Workflow code reads them with workflow.Headers.
func ExampleWithHeaders() {
	ctx := client.WithHeaders(context.Background(), map[string]string{"tenant": "acme"})
	app, err := client.New(client.Options{URLs: []string{"https://app.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	run, err := app.Start(ctx, "order", client.Args{7}, client.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := run.Signal(ctx, "paid"); err != nil {
		log.Fatal(err)
	}
}
