package httpapi

import (
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Operators select workers by common properties, because worker IDs change with every start. The audit record is part
// of the change, not of the route table, since the change may outlive this process.

// fleetRoutes returns the routes that address workers by ID, group, build or release. The broker writes the audit
// record in the change that stores the decision.
func fleetRoutes(ours lineFunc) []route {
	const at = "/api/sojourn/fleet"
	return []route{
		ours(get, at+"/drains", "list_fleet_drains", auth.Viewer, listFleetDrains),
		ours(get, at+"/settings", "fleet_settings", auth.Viewer, fleetSettings),
		ours(methodPut, at+"/settings", "set_fleet_settings", auth.Operator, setFleet),
		ours(post, at+"/drain", "drain_fleet", auth.Operator, operateFleet(protocol.FleetDrain)),
		ours(post, at+"/resume", "resume_fleet", auth.Operator, operateFleet(protocol.FleetResume)),
		ours(post, at+"/evict", "evict_fleet", auth.Operator, operateFleet(protocol.FleetEvict)),
	}
}

func listFleetDrains(a *API, c *call) (response, error) {
	return ok(a.opt.Fleet.FleetDrains(c.Ctx, c.NS))
}

func fleetSettings(a *API, c *call) (response, error) {
	return ok(a.opt.Fleet.FleetSettings(c.Ctx, c.NS))
}

func setFleet(a *API, c *call) (response, error) {
	in := protocol.FleetSettingsRequest{}
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Namespace, in.Identity = c.NS, c.Principal.Name
	return ok(a.opt.WorkerOperations.SetFleet(c.Ctx, in))
}

func operateFleet(verb string) func(*API, *call) (response, error) {
	return func(a *API, c *call) (response, error) {
		in := protocol.FleetRequest{}
		if err := c.Read(&in); err != nil {
			return response{}, err
		}
		in.Namespace, in.Verb, in.Identity = c.NS, verb, c.Principal.Name
		return ok(a.opt.WorkerOperations.OperateFleet(c.Ctx, in))
	}
}
