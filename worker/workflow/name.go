package workflow

// Name is the registered name of a workflow that takes one argument of type In and returns a result of type Out. A
// program declares it once as a constant, which the worker and the clients of the workflow share:
//
//	const Orders workflow.Name[Order, Receipt] = "order"
//
// The compiler then checks the function that worker.Register registers under the name, and the argument and the result
// of client.Start and client.Run. StartChild and ExecuteChild accept a Name as well.
//
// A workflow without an argument has In struct{}; its function has a parameter of this type. A workflow in another
// language, or with several arguments, is started by name.
type Name[In, Out any] string
