package storetest

import "testing"

// Run runs everything a store has to show.
func Run(t *testing.T, s Suite) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Suite)
	}{
		{"a change is stored whole or not at all", testAtomic},
		{"a change that fails leaves the others of its batch alone", testIsolated},
		{"rows the database refuses fail their change alone", testGuilty},
		{"a later change of a batch sees the earlier ones", testOverlay},
		{"a decision on a stale state is refused", testFence},
		{"a workflow id is taken once", testUnique},
		{"a cancelled wait does not undo the change", testCancelledWait},
		{"a closed store says so and has stored everything", testClosed},
		{"everything open survives a restart", testRestart},
		{"what a run owes another is kept until it is delivered", testOwed},
		{"the clock never goes back", testClock},
		{"history pages by sequence and size", testHistory},
		{"arguments and outcomes are found in the history", testFind},
		{"ready tasks come by priority, then by age", testOrder},
		{"pollers are served in their order and to their limits", testPollers},
		{"workers get only what they can run", testLanes},
		{"a lapsed lease is claimable and its holder is told", testLapse},
		{"a delayed retry waits for its time", testRetry},
		{"many claimers share a backlog without loss", testClaimers},
		{"a waiting poller gets the task in the commit that makes it", testHandOver},
		{"a hand-over that is not stored is undone", testUndone},
		{"a task nobody waits for is a backlog", testBacklog},
		{"what a claim leaves for a full worker is told", testLeftForTheFull},
		{"what a worker lost does not go into its open polls", testSilent},
		{"hints name what was touched", testHints},
		{"a drained build is given nothing", testDrained},
		{"a run pinned to a build is for that build", testPinned},
		{"a budget of leases holds and frees", testLeaseBudget},
		{"a budget of dispatches holds for its minute", testRateBudget},
		{"budgets cost nothing where there are none", testBudgetCost},
		{"a burst of one class does not hold up another", testFair},
		{"runs of a class keep their order", testFairRuns},
		{"without fairness keys nothing is ranked", testFairCost},
		{"sessions", testSessions},
		{"listings filter and page", testListings},
		{"filters find runs by columns and search attributes", testFilters},
		{"what is upserted is what is found", testReindex},
		{"odd texts of a run hide nothing", testOddTexts},
		{"schedules are kept, due and paged", testSchedules},
		{"namespaces are kept and go with what they hold", testNamespaces},
		{"what is due comes in its order", testDue},
		{"tokens, receipts, workers and audits are kept", testSmall},
		{"a batch of 64 completions is few statements", testBatchOf64},
		{"a batch of 64 completions in sessions is two more", testSessionBatchOf64},
		{"finishing one of 1,000 activities writes few rows", testOneOf1000},
		{"a cold run reads few rows", testCold},
		{"two stores share one database", testTwo},
		{"what a claim had to skip is told when it can be had", testSkipped},
		{"claims of one batch never exceed a cap of sessions", testOneBatch},
		{"two stores never exceed a cap of sessions", testTwoCaps},
		{"two stores never exceed a budget", testTwoBudgets},
		{"two stores rank as one", testTwoFair},
		{"random operations agree with the model", Model},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}
