// Package kubernetes renders the Helm chart with Helm's engine and validates the output against the types of
// Kubernetes. It is a separate module, so that the product does not depend on either.
package kubernetes

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../deploy/kubernetes"

// object is one manifest, decoded.
type object struct {
	kind string
	meta.Object
}

// manifests are all objects of a release.
type manifests struct{ list []object }

// kinds are the object types that the chart may create. A member that the type does not have is an error.
var kinds = map[string]func() meta.Object{
	"apps/v1 Deployment":                     func() meta.Object { return &apps.Deployment{} },
	"autoscaling/v2 HorizontalPodAutoscaler": func() meta.Object { return &autoscaling.HorizontalPodAutoscaler{} },
	"networking.k8s.io/v1 Ingress":           func() meta.Object { return &networking.Ingress{} },
	"networking.k8s.io/v1 NetworkPolicy":     func() meta.Object { return &networking.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":          func() meta.Object { return &policy.PodDisruptionBudget{} },
	"v1 PersistentVolumeClaim":               func() meta.Object { return &core.PersistentVolumeClaim{} },
	"v1 Secret":                              func() meta.Object { return &core.Secret{} },
	"v1 Service":                             func() meta.Object { return &core.Service{} },
	"v1 ServiceAccount":                      func() meta.Object { return &core.ServiceAccount{} },
}

// render is "helm template" with these values.
func render(t *testing.T, values map[string]any) (manifests, error) {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	m := manifests{}
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return m, err
	}
	release := chartutil.ReleaseOptions{Name: "prod", Namespace: "work", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, nil)
	if err != nil {
		return m, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return m, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, text := range regexp.MustCompile(`(?m)^---$`).Split(files[name], -1) {
			var head struct {
				APIVersion string `json:"apiVersion"`
				Kind       string `json:"kind"`
			}
			if err := yaml.Unmarshal([]byte(text), &head); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			if head.Kind == "" {
				if strings.TrimSpace(regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(text, "")) != "" {
					t.Errorf("%s: no kind in\n%s", name, text)
				}
				continue
			}
			of, ok := kinds[head.APIVersion+" "+head.Kind]
			if !ok {
				t.Fatalf("%s: nobody checks %s %s", name, head.APIVersion, head.Kind)
			}
			into := of()
			if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			m.list = append(m.list, object{head.Kind, into})
		}
	}
	return m, nil
}

// find is every object of a type, by name.
func find[T any](m manifests) map[string]*T {
	found := map[string]*T{}
	for _, o := range m.list {
		if of, ok := any(o.Object).(*T); ok {
			found[o.GetName()] = of
		}
	}
	return found
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	v := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func example(t *testing.T, name string) manifests {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	m, err := render(t, values(t, string(text)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// Every example renders valid objects: names and labels are valid, selectors match pods, referenced ports and volumes
// exist, no container runs as root, the grace period covers the drain, and every setting exists.
func TestTheChartHoldsTogether(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chartDir, "examples", "*.yaml"))
	if err != nil || len(files) != 3 {
		t.Fatalf("got %q, %v", files, err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			m := example(t, filepath.Base(f))
			names := map[string]bool{}
			for _, o := range m.list {
				key := o.kind + " " + o.GetName()
				if names[key] {
					t.Errorf("%s is there twice", key)
				}
				names[key] = true
				if wrong := validation.IsDNS1123Label(o.GetName()); len(wrong) > 0 {
					t.Errorf("%s: %v", key, wrong)
				}
				labelled(t, key, o.GetLabels())
			}
			deployments := find[apps.Deployment](m)
			for name, d := range deployments {
				deployed(t, m, name, d)
			}
			for name, b := range find[policy.PodDisruptionBudget](m) {
				one(t, "budget "+name, b.Spec.Selector, deployments)
				if b.Spec.MaxUnavailable == nil || b.Spec.MinAvailable != nil {
					t.Errorf("budget %s: %+v", name, b.Spec)
				}
			}
			for name, p := range find[networking.NetworkPolicy](m) {
				ports(t, m, name, p, one(t, "policy "+name, &p.Spec.PodSelector, deployments))
			}
			for name, s := range find[core.Service](m) {
				d := one(t, "service "+name, &meta.LabelSelector{MatchLabels: s.Spec.Selector}, deployments)
				for _, p := range s.Spec.Ports {
					port(t, "service "+name, p.TargetPort.String(), d)
				}
			}
			for name, h := range find[autoscaling.HorizontalPodAutoscaler](m) {
				scaled(t, name, h, deployments)
			}
		})
	}
}

func labelled(t *testing.T, what string, all map[string]string) {
	t.Helper()
	for k, v := range all {
		if wrong := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(wrong) > 0 {
			t.Errorf("%s has the label %s=%s: %v", what, k, v, wrong)
		}
	}
}

// one is the deployment whose pods a selector finds; exactly one.
func one(t *testing.T, what string, s *meta.LabelSelector, all map[string]*apps.Deployment) *apps.Deployment {
	t.Helper()
	chosen, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	var found []*apps.Deployment
	for _, d := range all {
		if chosen.Matches(labels.Set(d.Spec.Template.Labels)) {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s finds the pods of %d deployments", what, len(found))
	}
	return found[0]
}

func port(t *testing.T, what, name string, d *apps.Deployment) {
	t.Helper()
	for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
		if p.Name == name {
			return
		}
	}
	t.Errorf("%s: %s has no port %s", what, d.Name, name)
}

func deployed(t *testing.T, m manifests, name string, d *apps.Deployment) {
	t.Helper()
	all := find[apps.Deployment](m)
	if one(t, "deployment "+name, d.Spec.Selector, all) != d {
		t.Errorf("deployment %s finds others' pods", name)
	}
	labelled(t, name+"'s pods", d.Spec.Template.Labels)
	pod := d.Spec.Template.Spec
	if pod.TerminationGracePeriodSeconds == nil || *pod.TerminationGracePeriodSeconds < 40 {
		t.Errorf("%s is killed in its drain", name)
	}
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil {
		t.Errorf("%s may be root", name)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("%s has a token of Kubernetes", name)
	}
	if _, ok := find[core.ServiceAccount](m)[pod.ServiceAccountName]; !ok {
		t.Errorf("%s: no service account %q", name, pod.ServiceAccountName)
	}
	c := pod.Containers[0]
	if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
		s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || len(s.Capabilities.Drop) != 1 {
		t.Errorf("%s: %+v", name, s)
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("%s has no bounds: %+v", name, c.Resources)
	}
	volumes, mounted := map[string]core.Volume{}, map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
		if claim := v.PersistentVolumeClaim; claim != nil && find[core.PersistentVolumeClaim](m)[claim.ClaimName] == nil {
			t.Errorf("%s: no claim %s", name, claim.ClaimName)
		}
	}
	paths := map[string]bool{}
	for _, v := range c.VolumeMounts {
		mounted[v.Name], paths[v.MountPath] = true, true
		if _, ok := volumes[v.Name]; !ok {
			t.Errorf("%s mounts %s, which is no volume", name, v.Name)
		}
	}
	if len(mounted) != len(volumes) || !paths["/data"] || !paths["/tmp"] {
		t.Errorf("%s has the volumes %v and mounts %v", name, slices.Sorted(maps.Keys(volumes)), c.VolumeMounts)
	}
	seen := map[string]bool{}
	for _, e := range c.Env {
		if !slices.Contains(settings(t), e.Name) {
			t.Errorf("%s sets %s, which is no setting", name, e.Name)
		}
		if seen[e.Name] {
			t.Errorf("%s sets %s twice", name, e.Name)
		}
		seen[e.Name] = true
		if strings.HasPrefix(e.Value, "/") && e.Name != "SOJOURN_DATA_DIR" && !paths[filepath.Dir(e.Value)] {
			t.Errorf("%s: %s=%s lies on no volume", name, e.Name, e.Value)
		}
		if (e.Name == "SOJOURN_TOKEN" || e.Name == "SOJOURN_DATABASE_URL") && (e.Value != "" || e.ValueFrom == nil) {
			t.Errorf("%s: %s stands in the manifest", name, e.Name)
		}
	}
	if seen["SOJOURN_WORKER_ADDR"] {
		handsOver(t, name, d)
	}
	probes := map[string]*core.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe}
	for path, p := range probes {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != path {
			t.Fatalf("%s: probe of %s is %+v", name, path, p)
		}
		port(t, name+"'s probe", p.HTTPGet.Port.String(), d)
		if tls := seen["SOJOURN_TLS_CERT"]; (p.HTTPGet.Scheme == core.URISchemeHTTPS) != tls {
			t.Errorf("%s: probed by %s", name, p.HTTPGet.Scheme)
		}
	}
	// The port on which the process listens is the port of the container.
	for _, e := range c.Env {
		if e.Name == "SOJOURN_ADDR" || e.Name == "SOJOURN_WORKER_ADDR" {
			if e.Value != fmt.Sprintf(":%d", c.Ports[0].ContainerPort) {
				t.Errorf("%s listens on %s", name, e.Value)
			}
		}
	}
}

// handsOver checks that a worker keeps its ID when its container restarts, that new workers start before old ones stop,
// and that the grace period exceeds the drain by 15 s.
func handsOver(t *testing.T, name string, d *apps.Deployment) {
	t.Helper()
	r := d.Spec.Strategy.RollingUpdate
	if r.MaxUnavailable.String() != "0" || r.MaxSurge.String() == "0" {
		t.Errorf("%s stops old workers before new ones are ready: %+v", name, r)
	}
	id, drain := "", time.Duration(0)
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		switch e.Name {
		case "SOJOURN_WORKER_ID":
			id = e.ValueFrom.FieldRef.FieldPath
		case "SOJOURN_DRAIN_TIMEOUT":
			drain, _ = time.ParseDuration(e.Value)
		}
	}
	if id != "metadata.name" {
		t.Errorf("%s has no stable worker ID but %q", name, id)
	}
	grace := time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if drain < 25*time.Second || grace != drain+15*time.Second {
		t.Errorf("%s drains for %s and is killed after %s", name, drain, grace)
	}
}

func ports(t *testing.T, m manifests, name string, p *networking.NetworkPolicy, d *apps.Deployment) {
	t.Helper()
	if len(p.Spec.PolicyTypes) != 2 {
		t.Errorf("policy %s is about %v", name, p.Spec.PolicyTypes)
	}
	for _, rule := range p.Spec.Ingress {
		for _, r := range rule.Ports {
			port(t, "policy "+name, r.Port.String(), d)
		}
	}
	dns := false
	for _, rule := range p.Spec.Egress {
		for _, r := range rule.Ports {
			dns = dns || r.Port.IntValue() == 53 && r.Protocol != nil && *r.Protocol == core.ProtocolUDP
		}
		for _, to := range rule.To { // a pod of the chart: its named ports
			if to.PodSelector != nil && to.NamespaceSelector == nil {
				app := one(t, "policy "+name, to.PodSelector, find[apps.Deployment](m))
				for _, r := range rule.Ports {
					port(t, "policy "+name, r.Port.String(), app)
				}
			}
		}
	}
	if !dns {
		t.Errorf("policy %s lets nobody look up a name", name)
	}
}

// scaled checks that an autoscaler refers to a deployment without a replica count, and uses metrics that an app
// exports, one for each queue of its workers.
func scaled(t *testing.T, name string, h *autoscaling.HorizontalPodAutoscaler, all map[string]*apps.Deployment) {
	t.Helper()
	d := all[h.Spec.ScaleTargetRef.Name]
	if d == nil || d.Spec.Replicas != nil {
		t.Fatalf("%s scales %q: %+v", name, h.Spec.ScaleTargetRef.Name, d)
	}
	source, err := os.ReadFile("../../app/view/queuemetrics.go")
	if err != nil {
		t.Fatal(err)
	}
	var queues []string
	for _, m := range h.Spec.Metrics {
		e := m.External
		if m.Type != autoscaling.ExternalMetricSourceType || e == nil || e.Target.Value == nil || e.Target.Value.IsZero() {
			t.Fatalf("%s: %+v", name, m)
		}
		if !strings.Contains(string(source), `"`+e.Metric.Name+`"`) {
			t.Errorf("%s: no app exports %s", name, e.Metric.Name)
		}
		for label := range e.Metric.Selector.MatchLabels {
			if !strings.Contains(string(source), `"`+label+`"`) {
				t.Errorf("%s: %s has no label %s", name, e.Metric.Name, label)
			}
		}
		queues = append(queues, e.Metric.Selector.MatchLabels["queue"])
	}
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		if e.Name == "SOJOURN_QUEUES" && e.Value != strings.Join(queues, ",") {
			t.Errorf("%s scales by %q, its workers serve %s", name, queues, e.Value)
		}
	}
	if *h.Spec.MinReplicas > h.Spec.MaxReplicas || *h.Spec.Behavior.ScaleDown.StabilizationWindowSeconds < 300 {
		t.Errorf("%s: %+v", name, h.Spec)
	}
}

// The examples have a description.
func TestExamplesStateTheirPurpose(t *testing.T) {
	m := example(t, "one.yaml")
	deployments := find[apps.Deployment](m)
	app := deployments["prod-sojourn-app"]
	if len(deployments) != 2 || app.Spec.Strategy.Type != apps.RecreateDeploymentStrategyType || *app.Spec.Replicas != 1 ||
		len(find[core.PersistentVolumeClaim](m)) != 1 || len(find[core.Secret](m)) != 0 {
		t.Errorf("one: %+v", deployments)
	}
	m = example(t, "fleet.yaml")
	deployments = find[apps.Deployment](m)
	app = deployments["prod-sojourn-app"]
	if len(deployments) != 3 || *app.Spec.Replicas != 3 ||
		app.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 ||
		len(find[core.PersistentVolumeClaim](m)) != 0 || len(find[autoscaling.HorizontalPodAutoscaler](m)) != 1 ||
		len(find[policy.PodDisruptionBudget](m)) != 3 || len(find[networking.NetworkPolicy](m)) != 3 ||
		len(find[networking.Ingress](m)) != 1 {
		t.Errorf("fleet: %v", slices.Sorted(maps.Keys(deployments)))
	}
	said := map[string]string{}
	for _, e := range deployments["prod-sojourn-worker-models"].Spec.Template.Spec.Containers[0].Env {
		said[e.Name] = e.Value
	}
	if said["SOJOURN_QUEUES"] != "models,models-batch" || said["SOJOURN_BUILD_ID"] != "2026-11" ||
		said["SOJOURN_DRAIN_TIMEOUT"] != "180s" || said["SOJOURN_LOG_LEVEL"] != "debug" ||
		said["SOJOURN_APP_URL"] != "http://prod-sojourn:7700" {
		t.Errorf("models: %v", said)
	}
	m = example(t, "tls.yaml")
	said = map[string]string{}
	for _, e := range find[apps.Deployment](m)["prod-sojourn-worker-default"].Spec.Template.Spec.Containers[0].Env {
		said[e.Name] = e.Value
	}
	if said["SOJOURN_APP_URL"] != "https://prod-sojourn:7700" || said["SOJOURN_APP_CA"] != "/tls/ca/ca.crt" ||
		said["SOJOURN_CLIENT_KEY"] != "/tls/worker/tls.key" {
		t.Errorf("tls: %v", said)
	}
}

// The chart rejects invalid values with an explanation before anything is installed.
func TestTheChartRefusesWhatCannotWork(t *testing.T) {
	for _, c := range []struct{ values, says string }{
		{`{}`, "token.secret"},
		{`{token: {secret: s}}`, "several apps need PostgreSQL"},
		{`{token: {secret: s}, database: {secret: d}, tls: {enabled: true}}`, "tls.secret"},
		{`{token: {secret: s}, database: {secret: d}, tls: {clientCA: {secret: c}}}`, "tls.workerSecret"},
		{`{token: {secret: s}, database: {secret: d}, ingress: {enabled: true}}`, "ingress.host"},
		{`{token: {secret: s}, database: {secret: d}, workers: {w: {queue: [a]}}}`, "queue"},
		{`{token: {secret: s}, database: {secret: d}, workers: {w: {queues: ["a,b"]}}}`, "pattern"},
		{`{token: {secret: s}, database: {secret: d}, workers: {W: {}}}`, "W"},
		{`{tokens: {secret: s}}`, "tokens"},
	} {
		if _, err := render(t, values(t, c.values)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.values, err, c.says)
		}
	}
	own, err := render(t, values(t, `{token: {value: long}, database: {secret: d},
		workers: {default: {maxSurge: 0, env: {WORKER_ID: w, DRAIN_TIMEOUT: 5s}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	d := find[apps.Deployment](own)["prod-sojourn-worker-default"]
	if n := d.Spec.Strategy.RollingUpdate.MaxUnavailable.String(); n != "25%" {
		t.Errorf("without surge %s old workers may stop: the upgrade cannot begin", n)
	}
	times := map[string]int{}
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		times[e.Name]++
	}
	if times["SOJOURN_WORKER_ID"] != 1 || times["SOJOURN_DRAIN_TIMEOUT"] != 1 {
		t.Errorf("settings of the values are there besides those of the chart: %v", times)
	}
	m, err := render(t, values(t, `{token: {value: long}, database: {secret: d}, workers: {default: null, w: {}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := find[apps.Deployment](m); len(d) != 2 || d["prod-sojourn-worker-w"] == nil || len(find[core.Secret](m)) != 1 {
		t.Errorf("a pool of another name: %v", slices.Sorted(maps.Keys(d)))
	}
}

func TestHelmFindsNothingWrongWithTheChart(t *testing.T) {
	result := lint.AllWithKubeVersion(chartDir, values(t, `{token: {secret: s}, database: {secret: d}}`), "work", nil)
	for _, m := range result.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	release, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.AppVersion != strings.TrimSpace(string(release)) {
		t.Errorf("the chart installs %s, VERSION is %s", c.Metadata.AppVersion, release)
	}
	if slices.ContainsFunc(c.Raw, func(f *chart.File) bool { return strings.HasPrefix(f.Name, "examples/") }) {
		t.Error("the examples are packed with it")
	}
}

// settings are the variables of the product's table of settings.
func settings(t *testing.T) (all []string) {
	t.Helper()
	table, err := os.ReadFile("../../internal/config/settings.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`name: "([a-z-]+)"`).FindAllStringSubmatch(string(table), -1) {
		all = append(all, "SOJOURN_"+strings.ToUpper(strings.ReplaceAll(m[1], "-", "_")))
	}
	if !slices.Contains(all, "SOJOURN_TOKEN") || slices.Contains(all, "SOJOURN_TOKENS") {
		t.Fatalf("no table of settings: %q", all)
	}
	return all
}
