package protocol

// SearchAttribute registers a search attribute; it is also the response to this and to the removal.
type SearchAttribute struct {
	// 1 to 128 letters, digits and _; begins with a letter
	Name string `json:"name" pattern:"^[a-zA-Z][a-zA-Z0-9_]{0,127}$"`
	// keyword, text, int, double, bool, datetime, keyword_list
	Type    string `json:"type,omitempty" enum:"keyword,text,int,double,bool,datetime,keyword_list"`
	Outcome string `json:"outcome,omitempty"` // created, deleted
}

// SearchAttributes lists the names and types of attributes for filters.
type SearchAttributes struct {
	System map[string]string `json:"system_attributes"`
	Custom map[string]string `json:"custom_attributes"`
}
