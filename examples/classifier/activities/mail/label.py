"""The activity mail.label: says of what kind a letter is, by the model that mail.train left in the session."""

# When the model is gone, since its process died or the session went to another worker, it is learned anew, once for all
# letters that wait, and each letter is looked at again. No caller sees anything of it.
recovery = {"rebuild_activity": "mail.train"}


def main(text, ctx):
    return ctx.session.require("model").label(text)
