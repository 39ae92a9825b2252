package lockdown

// These are the rights on files, as bits of the kernel's interface.
const (
	execute = 1 << iota
	writeFile
	readFile
	readDir
	removeDir
	removeFile
	makeChar
	makeDir
	makeReg
	makeSock
	makeFifo
	makeBlock
	makeSym
	refer
	truncate
	ioctlDev
	resolveUnix
)

// ofFiles are the rights that apply to a file that is not a folder. The kernel refuses a rule with other rights for
// such a file.
const ofFiles = execute | writeFile | readFile | truncate | ioctlDev | resolveUnix

// These are the scopes of a Landlock domain.
const (
	scopeAbstract = 1 << iota
	scopeSignal
)

// connectPort is the right to connect to a TCP port.
const connectPort = 1 << 1

// ofPort is the type of a port rule.
const ofPort = 2

// portRule is a port rule in the kernel's layout.
type portRule struct{ rights, port uint64 }

// ruleset lists the rights that Landlock denies unless a rule grants them. Its layout is the kernel's.
type ruleset struct {
	files  uint64
	net    uint64
	scoped uint64
}

// rulesetOf returns the ruleset that denies all rights that an ABI version can deny.
func rulesetOf(abi int) ruleset {
	s := ruleset{files: makeSym<<1 - 1}
	for _, later := range []struct {
		abi   int
		right uint64
	}{{abiRename, refer}, {abiTruncate, truncate}, {abiIoctl, ioctlDev}, {abiUnix, resolveUnix}} {
		if abi >= later.abi {
			s.files |= later.right
		}
	}
	if abi >= abiScope {
		s.scoped = scopeAbstract | scopeSignal
	}
	return s
}

// ruleset returns the rights that these rules deny unless a rule is added.
func (r Rules) ruleset() ruleset {
	s := rulesetOf(r.Landlock)
	if len(r.Ports) > 0 {
		s.net = connectPort
	}
	return s
}

// fileRule grants rights below a path.
type fileRule struct {
	path   string
	rights uint64
	needed bool // a missing path is an error; other missing paths are ignored
}

// fileRules returns the Landlock rules for files. Rights that the kernel's ABI version does not know are removed when
// the rule is added.
func (r Rules) fileRules() []fileRule {
	var all []fileRule
	for _, path := range r.Read {
		all = append(all, fileRule{path: path, rights: execute | readFile | readDir})
	}
	for _, path := range r.Write {
		all = append(all, fileRule{
			path: path, needed: true,
			rights: (resolveUnix<<1 - 1) &^ (makeChar | makeBlock | ioctlDev),
		})
	}
	for _, path := range r.Devices {
		all = append(all, fileRule{path: path, rights: readFile | writeFile | truncate | ioctlDev})
	}
	return all
}

// on returns the rule's rights that the ruleset handles and that apply to a file or folder.
func (f fileRule) on(s ruleset, folder bool) uint64 {
	rights := f.rights & s.files
	if !folder {
		rights &= ofFiles
	}
	return rights
}
