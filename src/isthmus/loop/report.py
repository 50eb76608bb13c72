"""tmp"""
def write_report(path, story, settings, task, found):
    path.write_text("\n".join(found.sentences))
    return path
